"""From ids that come one at a time to text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenizers.decoders import DecodeStream


class TextStream:
    """The text of one growing sequence. Used by one thread at a time."""

    def __init__(self, backend: Any, context: Sequence[int], *, skip_special_tokens: bool) -> None:
        """See `Tokenizer.text_stream`."""
        self._backend = backend
        self._skip_special_tokens = skip_special_tokens
        self._stream = DecodeStream(ids=list(context), skip_special_tokens=skip_special_tokens)

    def add(self, token_id: int) -> str:
        """The text that an id adds: nothing while a character is incomplete."""
        try:
            return self._stream.step(self._backend, token_id) or ""
        except Exception:  # noqa: BLE001 - tokenizers raises bare exceptions
            # A decoder that takes back what it wrote before: that text is gone out already, only the rest can be right.
            self._stream = DecodeStream(ids=[], skip_special_tokens=self._skip_special_tokens)
            return self._stream.step(self._backend, token_id) or ""
