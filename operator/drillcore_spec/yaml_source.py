"""YAML (and so JSON) read to plain data, with the line of every field.

What PyYAML's own constructors do is not enough for a file that `kubectl apply` reads too: they know no
lines, let the last of two equal keys win, turn `2024-01-01` into a date and `1:30` into 90, and expand
aliases without limit. Here data is exactly JSON's types, and all sizes are bounded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from drillcore_spec.errors import Location, Problem, SpecError

MAX_SOURCE_BYTES: Final = 1024 * 1024
"""Longest file; a resource in etcd has at most 1.5 MB."""
MAX_DEPTH: Final = 40
MAX_VALUES: Final = 50_000
"""Most values after aliases are expanded."""

_TAG: Final = "tag:yaml.org,2002:"
_RESOLVERS: Final = (
    ("bool", r"true|True|TRUE|false|False|FALSE|yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF", "tTfFyYnNoO"),
    ("int", r"[-+]?(0|[1-9][0-9]*)", "-+0123456789"),
    (
        "float",
        r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", r"<<", "<"),
)
_TRUE: Final = frozenset({"true", "yes", "on"})


class _Loader(yaml.SafeLoader):
    """Nodes with the scalar types of JSON; nesting is bounded, because the composer recurses."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  (the name is PyYAML's)
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> yaml.Node | None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            problem = f"more than {MAX_DEPTH} levels of nesting"
            raise yaml.composer.ComposerError(None, None, problem, parent.start_mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node


for _name, _pattern, _first in _RESOLVERS:
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(rf"^({_pattern})\Z"), list(_first))


@dataclass
class _Reader:
    """Turns the nodes of one document into plain data and notes their lines."""

    source: str
    lines: dict[Location, int] = field(default_factory=dict)
    num_values: int = 0

    def read(self, node: yaml.Node, location: Location) -> Any:
        """The value of `node`, which stands at `location`."""
        self.lines.setdefault(location, node.start_mark.line + 1)
        self.num_values += 1
        if self.num_values > MAX_VALUES or len(location) > MAX_DEPTH:
            raise self._error(node, (), "expected a job; got aliases that expand to far more than that")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, location)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(item, (*location, index)) for index, item in enumerate(node.value)]
        return self._scalar(node, location)

    def _mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, Any]:
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._error(key_node, location, "expected a string as key; got a list or mapping")
            key = self._text(key_node, location)
            if key_node.tag == _TAG + "merge":
                merged = self._merged(value_node, location) | merged
                continue
            if key in own:
                raise self._error(key_node, (*location, key), "expected each key once; got it a second time")
            self.lines[(*location, key)] = key_node.start_mark.line + 1
            own[key] = self.read(value_node, (*location, key))
        return merged | own

    def _merged(self, node: yaml.Node, location: Location) -> dict[str, Any]:
        parts = node.value if isinstance(node, yaml.SequenceNode) else [node]
        merged: dict[str, Any] = {}
        for part in parts:
            if not isinstance(part, yaml.MappingNode):
                raise self._error(node, location, "expected a mapping, or a list of mappings, after `<<`")
            merged = self.read(part, location) | merged
        return merged

    def _scalar(self, node: yaml.Node, location: Location) -> Any:
        kind = node.tag.removeprefix(_TAG)
        text = self._text(node, location)
        if kind in ("str", "merge"):
            return text
        try:
            return _SCALARS[kind](text)
        except (KeyError, ValueError):
            raise self._error(
                node, location, f"expected a string, number, boolean or null; got {text[:60]!r} as {kind}"
            ) from None

    def _text(self, node: yaml.Node, location: Location) -> str:
        # JSON writes characters beyond U+FFFF as two escapes, which PyYAML leaves apart.
        text: str = node.value
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise self._error(node, location, "expected text; got half of a surrogate pair") from None

    def _error(self, node: yaml.Node, location: Location, message: str) -> SpecError:
        return SpecError([Problem(message, location, self.source, node.start_mark.line + 1)])


def _float(text: str) -> float:
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


_SCALARS: Final[dict[str, Any]] = {
    "bool": lambda text: text.lower() in _TRUE,
    "int": int,
    "float": _float,
    "null": lambda text: None,
}


def read_document(text: str, source: str) -> tuple[Any, dict[Location, int]]:
    """The one document in `text` as plain data, and the line (from 1) of each field in it.

    Empty documents beside it are allowed, as for kubectl.

    Raises:
        SpecError: bad YAML, no document, more than one, a key twice, or sizes beyond the limits above.
    """
    try:
        nodes = _documents(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        raise SpecError([Problem(f"expected YAML; got {_reason(error)}", (), source, line)]) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        message = f"expected YAML; got the character U+{ord(text[error.position]):04X}"
        raise SpecError([Problem(message, (), source, line)]) from None
    if not nodes:
        raise SpecError([Problem("expected an ExtractionJob; got an empty file", (), source)])
    if len(nodes) > 1:
        line = nodes[1].start_mark.line + 1
        raise SpecError([Problem("expected one document; a second one begins here", (), source, line)])
    reader = _Reader(source)
    return reader.read(nodes[0], ()), reader.lines


def _documents(text: str) -> list[yaml.Node]:
    # JSON may be indented with tabs, which YAML forbids; a valid JSON string never holds one.
    loader = _Loader(text.replace("\t", " ") if text.lstrip().startswith("{") else text)
    nodes: list[yaml.Node] = []
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is not None and node.tag != _TAG + "null":
                nodes.append(node)
    finally:
        loader.dispose()
    return nodes


def _reason(error: yaml.MarkedYAMLError) -> str:
    return " ".join(part.strip() for part in (error.context, error.problem) if part)
