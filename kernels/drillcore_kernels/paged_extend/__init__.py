"""Causal attention of new queries over paged keys and values."""
