"""Rows of the hidden cache by slot."""
