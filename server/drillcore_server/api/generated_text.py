"""The text of one generation as it grows, and the stop strings that end it."""

from __future__ import annotations

from collections.abc import Sequence

from drillcore_server.data.text_stream import TextStream


class StopStrings:
    """Finds the first stop string in a growing text. Text that may be the beginning of one is held back."""

    def __init__(self, stops: Sequence[str], *, include: bool) -> None:
        """`include`: whether the text ends with the stop string, or before it."""
        self._stops = stops
        self._include = include
        self._held_back = max(map(len, stops), default=1) - 1
        self._pending = ""
        self.found: str | None = None
        """The stop string that ended the text."""

    def add(self, text: str) -> str:
        """Takes text; gives what is sure to belong to the answer."""
        self._pending += text
        found = [(at, stop) for stop in self._stops if (at := self._pending.find(stop)) >= 0]
        if found:
            at, self.found = min(found)
            return self._give(at + len(self.found) if self._include else at)
        return self._give(len(self._pending) - self._held_back)

    def flush(self) -> str:
        """What was held back and turned out to be no stop string."""
        return "" if self.found is not None else self._give(len(self._pending))

    def _give(self, length: int) -> str:
        given = self._pending[: max(length, 0)]
        self._pending = self._pending[len(given) :]
        return given


class GeneratedText:
    """From the ids of one generation to its text and the reason that it ended. Used by one thread at a time."""

    def __init__(self, stream: TextStream, stops: StopStrings, stop_token_ids: frozenset[int]) -> None:
        """The text of an id in `stop_token_ids` is no part of the answer."""
        self._stream = stream
        self._stops = stops
        self._stop_token_ids = stop_token_ids
        self.stop_token_id: int | None = None
        """The id that ended the text."""

    @property
    def is_stopped(self) -> bool:
        """Whether it ended before its most tokens."""
        return self.stop_token_id is not None or self._stops.found is not None

    @property
    def stop_reason(self) -> str | None:
        """The stop string that ended it."""
        return self._stops.found

    def add(self, token_id: int) -> str:
        """The text that is sure to belong to the answer by now."""
        if token_id in self._stop_token_ids:
            self.stop_token_id = token_id
            return ""
        return self._stops.add(self._stream.add(token_id))

    def flush(self) -> str:
        """The rest, when the last id was added."""
        return self._stops.flush()
