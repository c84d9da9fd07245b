"""The operator: turns an ExtractionJob into one Indexed Job, and says in its status what becomes of it."""
