"""What a person sees while a job runs: progress bars on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from drillcore_server.local import Progress

_LINE_INTERVAL_S = 10.0
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def human_bytes(size_bytes: float) -> str:
    """A size with a binary unit: `1.5 GiB`."""
    unit = 0
    while size_bytes >= 1024 and unit < len(_UNITS) - 1:
        size_bytes /= 1024
        unit += 1
    return f"{size_bytes:.0f} {_UNITS[unit]}" if unit == 0 else f"{size_bytes:.1f} {_UNITS[unit]}"


class Display(Protocol):
    """Takes the supervisor's calls."""

    def __enter__(self) -> Display: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def progress(self, shard: int, progress: Progress) -> None:
        """The latest counts of a shard."""
        ...

    def say(self, text: str) -> None:
        """A line that stays."""
        ...


def choose_display(*, quiet: bool) -> Display:
    """Bars on a terminal, lines elsewhere, nothing when `quiet`."""
    if quiet:
        return _Lines(interval_s=float("inf"))
    console = Console(stderr=True)
    return _Bars(console) if console.is_terminal else _Lines(interval_s=_LINE_INTERVAL_S)


class _Rate:
    """Tokens a second since a shard's first counts of this run."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._start: tuple[int, float, int] | None = None

    def __call__(self, shard: int, tokens: int) -> float:
        now = self._clock()
        if self._start is None or self._start[0] != shard:
            self._start = (shard, now, tokens)
        _, since, first = self._start
        return (tokens - first) / max(now - since, 1e-9)


class _Bars:
    def __init__(self, console: Console) -> None:
        self._rate = _Rate(time.monotonic)
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rows  {task.fields[rate]} tokens/s  {task.fields[written]}  ETA"),
            TimeRemainingColumn(),
            console=console,
        )
        self._tasks: dict[int, object] = {}

    def __enter__(self) -> _Bars:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def progress(self, shard: int, progress: Progress) -> None:
        if shard not in self._tasks:
            self._tasks[shard] = self._bars.add_task(f"shard {shard}", total=None, rate="0", written="0 B")
        self._bars.update(
            self._tasks[shard],  # type: ignore[arg-type]
            total=progress.rows_total or None,
            completed=progress.rows_written + progress.rows_quarantined,
            rate=f"{self._rate(shard, progress.tokens):,.0f}",
            written=human_bytes(progress.bytes),
        )

    def say(self, text: str) -> None:
        self._bars.console.print(text, highlight=False)


class _Lines:
    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._rate = _Rate(time.monotonic)
        self._next_s = 0.0

    def __enter__(self) -> _Lines:
        self._next_s = time.monotonic() + min(self._interval_s, _LINE_INTERVAL_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def progress(self, shard: int, progress: Progress) -> None:
        rate = self._rate(shard, progress.tokens)
        if self._interval_s == float("inf") or time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + self._interval_s
        rows = f"{progress.rows_written + progress.rows_quarantined}/{progress.rows_total or '?'} rows"
        self.say(f"shard {shard}: {rows}, {rate:,.0f} tokens/s, {human_bytes(progress.bytes)}")

    def say(self, text: str) -> None:
        sys.stderr.write(text + "\n")
