"""Gated MLP activation."""
