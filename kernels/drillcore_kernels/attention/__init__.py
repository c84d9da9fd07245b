"""What the three attention operations share."""
