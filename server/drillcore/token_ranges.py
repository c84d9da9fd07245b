"""The parameters of positions Window and Stride, as manifest.json records them."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from drillcore.json_fields import Fields, JsonValue


@dataclass(frozen=True)
class TokenWindow:
    """The positions start <= p < end."""

    start: int
    end: int

    def to_json(self) -> dict[str, JsonValue]:
        """The JSON object."""
        return asdict(self)

    @classmethod
    def from_fields(cls, window: Fields) -> TokenWindow:
        """The window that a JSON object holds; raises `FormatError`."""
        start = window.integer("start")
        return cls(start, window.integer("end", minimum=start + 1))


@dataclass(frozen=True)
class TokenStride:
    """The positions offset, offset + step, offset + 2 * step, and so on."""

    step: int
    offset: int

    def to_json(self) -> dict[str, JsonValue]:
        """The JSON object."""
        return asdict(self)

    @classmethod
    def from_fields(cls, stride: Fields) -> TokenStride:
        """The stride that a JSON object holds; raises `FormatError`."""
        return cls(stride.integer("step", minimum=1), stride.integer("offset"))
