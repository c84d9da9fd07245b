"""The ExtractionJob resource and its vocabulary: pydantic and the standard library only."""
