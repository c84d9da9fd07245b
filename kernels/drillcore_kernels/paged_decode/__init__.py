"""Attention of one query a sequence over paged keys and values."""
