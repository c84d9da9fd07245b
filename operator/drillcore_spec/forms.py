"""The forms of the strings and numbers in the spec: a pattern for machines and words for people.

Patterns are read by Rust's regex (here) and by Go's RE2 (in the API server): only what both know alike.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, StringConstraints

from drillcore_spec.quantity import BYTES_FORM, BYTES_PATTERN, CPU_FORM, CPU_PATTERN

WORDS_OF_PATTERN: dict[str, str] = {}
"""What each pattern of this module asks for, in words."""

_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LABEL_VALUE = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_FILE_URI = r"file:///[^\s]+"
_PVC_URI = rf"pvc://{_SUBDOMAIN}(/[^\s]*)?"
_HUB_URI = r"hf://[^\s/]+(/[^\s]*)?"


def _form(pattern: str, words: str, max_length: int) -> Any:
    anchored = pattern if pattern.startswith("^") else f"^({pattern})$"
    WORDS_OF_PATTERN[anchored] = words
    return StringConstraints(strict=True, pattern=anchored, max_length=max_length)


def _any_text(max_length: int, min_length: int = 1) -> Any:
    return StringConstraints(strict=True, min_length=min_length, max_length=max_length)


def integer(minimum: int, maximum: int) -> Any:
    """Annotation of an integer field; both bounds are inclusive."""
    return Field(strict=True, ge=minimum, le=maximum)


def number(minimum: float, maximum: float) -> Any:
    """Annotation of a number field; both bounds are inclusive."""
    return Field(strict=True, ge=minimum, le=maximum)


ByteQuantity = Annotated[str, _form(BYTES_PATTERN, BYTES_FORM, 24)]
CpuQuantity = Annotated[str, _form(CPU_PATTERN, CPU_FORM, 16)]

ObjectName = Annotated[
    str,
    _form(_SUBDOMAIN, "the name of a Kubernetes object (lower-case letters, digits, `-` and `.`; at most 253)", 253),
]
LabelKey = Annotated[
    str,
    _form(
        rf"({_SUBDOMAIN}/)?{_LABEL_VALUE}",
        "a label key (letters, digits, `-`, `_`, `.`, with an optional `prefix/`)",
        317,
    ),
]
LabelValue = Annotated[
    str,
    _form(rf"({_LABEL_VALUE})?", "a label value (letters, digits, `-`, `_`, `.`; at most 63 characters)", 63),
]
QueueName = Annotated[str, _form(_LABEL_VALUE, "a name (letters, digits, `-`, `_`, `.`; at most 63 characters)", 63)]
EnvName = Annotated[
    str,
    _form(r"[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable (letters, digits, `_`; no digit first)", 253),
]

SourceUri = Annotated[
    str,
    _form(
        f"{_HUB_URI}|{_FILE_URI}|{_PVC_URI}",
        "hf://NAME, file:///ABSOLUTE/PATH or pvc://CLAIM/PATH, without spaces",
        1024,
    ),
]
FileUri = Annotated[
    str,
    _form(f"{_FILE_URI}|{_PVC_URI}", "file:///ABSOLUTE/PATH or pvc://CLAIM/PATH, without spaces", 1024),
]
RelativePath = Annotated[str, _form(r"[^/\s]+(/[^/\s]+)*", "a relative path such as runs/llama, without spaces", 512)]
Revision = Annotated[str, _form(r"[A-Za-z0-9][A-Za-z0-9._/-]*", "a commit, branch or tag of the model hub", 253)]
ImageName = Annotated[str, _form(r"[^\s]+", "a container image, without spaces", 512)]

ColumnName = Annotated[str, _any_text(253)]
ShortText = Annotated[str, _any_text(253)]
MediumText = Annotated[str, _any_text(1024, min_length=0)]
LongText = Annotated[str, _any_text(4096, min_length=0)]

Flag = Annotated[bool, Field(strict=True)]
LayerId = Annotated[int, integer(0, 4096)]
TokenCount = Annotated[int, integer(0, 2**31 - 1)]
PositiveTokenCount = Annotated[int, integer(1, 2**31 - 1)]
RowCount = Annotated[int, integer(1, 2**40 - 1)]
Seconds = Annotated[int, integer(1, 2**31 - 1)]
ShardCount = Annotated[int, integer(1, 100_000)]
UserId = Annotated[int, integer(1, 2**31 - 1)]
GroupId = Annotated[int, integer(0, 2**31 - 1)]
Seed = Annotated[int, integer(0, 2**53 - 1)]
