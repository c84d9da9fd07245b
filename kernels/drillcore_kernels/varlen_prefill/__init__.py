"""Causal attention over packed fresh sequences."""
