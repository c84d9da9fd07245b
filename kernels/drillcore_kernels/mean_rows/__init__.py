"""Means over rows of the hidden cache."""
