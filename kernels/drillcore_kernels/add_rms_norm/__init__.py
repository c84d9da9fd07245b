"""Residual add, RMS norm and capture."""
