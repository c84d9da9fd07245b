"""The picture of an output for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from drillcore_server.cli.inspect_picture import Diagram, Picture

_BAR_CHARACTERS = 32
_LABEL_CHARACTERS = 18
_VALUE_CHARACTERS = 11


def text_of(picture: Picture) -> str:
    """Lines of ASCII bars, each ended."""
    lines = [f"  {name:<11} {value}" for name, value in picture.facts]
    for diagram in picture.diagrams:
        lines += ["", f"  {diagram.title}", *_diagram_lines(diagram)]
    return "".join(f"{line}\n" for line in lines)


def _diagram_lines(diagram: Diagram) -> Iterator[str]:
    yield _line(diagram.heads[0], diagram.heads[1:], "")
    for bar in diagram.bars:
        yield _line(bar.label, bar.values, "#" * round(bar.share * _BAR_CHARACTERS))


def _line(label: str, values: Sequence[str], bar: str) -> str:
    figures = "".join(f"{value:>{_VALUE_CHARACTERS}}" for value in values)
    return f"  {label:<{_LABEL_CHARACTERS}}{figures}  {bar}".rstrip()
