"""Drains the ring, writes parts, commits. No torch."""
