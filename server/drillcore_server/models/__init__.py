"""Model code: one decoder driven by a ModelSpec of flags, and its loader."""
