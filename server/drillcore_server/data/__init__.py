"""Dataset rows to token ids, masks and positions."""
