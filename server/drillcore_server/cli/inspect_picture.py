"""What `drillcore inspect` shows, in words and bars: the same in a terminal and on a page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from drillcore import Counts, InspectReport
from drillcore_server.cli.display import human_bytes


@dataclass(frozen=True)
class Bar:
    """One line of a diagram."""

    label: str
    values: tuple[str, ...]
    """What the bar stands for, in figures."""
    share: float
    """Of the longest bar, 0 to 1."""


@dataclass(frozen=True)
class Diagram:
    """Bars under one heading."""

    title: str
    heads: tuple[str, ...]
    """What the label and each of the values are."""
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Picture:
    """An output at a glance. All text is printable: no file can move the cursor of a terminal."""

    title: str
    facts: tuple[tuple[str, str], ...]
    """Names and values."""
    diagrams: tuple[Diagram, ...]
    """Those that there is something to draw of."""

    @classmethod
    def of(cls, report: InspectReport) -> Picture:
        """The picture of a report."""
        facts = tuple((name, printable(value)) for name, value in _facts(report))
        diagrams = (_tokens_per_row(report), _mean_norms(report))
        return cls(printable(str(report.path)), facts, tuple(d for d in diagrams if d.bars))


def rows_in_words(counts: Counts) -> str:
    """What became of the rows."""
    return f"{counts.rows_in:,} rows in, {counts.rows_out:,} out, {counts.rows_quarantined:,} quarantined"


def printable(text: str) -> str:
    """The text with every character that shows nothing, such as ESC or half a surrogate pair, as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _facts(report: InspectReport) -> Iterator[tuple[str, str]]:
    manifest, counts = report.manifest, report.counts
    committed = sum(shard.committed for shard in report.shards)
    yield "output", f"{report.path} ({'complete' if report.complete else 'not complete'})"
    yield "model", manifest.model.uri + (f" at {manifest.model.revision}" if manifest.model.revision else "")
    yield "dataset", str(manifest.dataset["uri"])
    yield "columns", f"{', '.join(map(str, manifest.columns))} of {manifest.hidden_size} {manifest.store_dtype.value}"
    yield "positions", manifest.positions
    if manifest.generation is not None:
        yield "generation", ", ".join(f"{name} {value}" for name, value in manifest.generation.items())
    yield "shards", f"{committed} of {manifest.shard_count} committed"
    yield "rows", rows_in_words(counts)
    yield "tokens", f"{counts.tokens:,}; {counts.states:,} states, {human_bytes(counts.bytes)}"
    for reason, count in report.quarantine.items():
        yield "quarantine", f"{count:,} {reason}"


def _tokens_per_row(report: InspectReport) -> Diagram:
    histogram = report.tokens_per_row
    most = max(histogram.rows, default=1)
    bars = tuple(
        Bar(f"{low:,} to {high - 1:,}", (f"{rows:,}",), rows / most)
        for low, high, rows in zip(histogram.edges, histogram.edges[1:], histogram.rows, strict=False)
    )
    title = f"tokens per row: median {histogram.median:,.0f}, longest {histogram.longest:,}"
    return Diagram(title, ("tokens", "rows"), bars)


def _mean_norms(report: InspectReport) -> Diagram:
    """One bar for each column; norms differ by orders of magnitude, so that the figures stand beside them."""
    longest = max((stats.mean_norm for stats in report.layer_stats.values()), default=0.0) or 1.0
    bars = tuple(
        Bar(printable(name), (f"{stats.mean_norm:.5g}", f"{stats.max_abs:.5g}"), stats.mean_norm / longest)
        for name, stats in report.layer_stats.items()
    )
    return Diagram("mean norm of each column's states", ("column", "mean norm", "max abs"), bars)
