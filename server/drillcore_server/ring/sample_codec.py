"""The bytes of an end-of-sample record: everything about a sample but its states.

int64[10]   num_tokens, num_prompt_tokens, original_tokens, last_token (-1: none), first_state, num_states,
            num_columns, num_positions (-1: none), has_loss_mask (0, 1), id_bytes (-1: no id)
int64       token_ids [num_tokens]
float64     norm_sums [num_columns], max_abs [num_columns]
int32       positions [num_positions]
uint8       loss_mask [num_tokens]
uint8       id, UTF-8 [id_bytes]
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from drillcore.records import SampleEnd
from drillcore_server.ring.errors import RingCorruptError

_HEAD = struct.Struct("<10q")
_NONE: Final = -1


def encode_sample_end(end: SampleEnd) -> bytes:
    """The record of one sample; its row stands in the descriptor."""
    identifier = None if end.id is None else end.id.encode("utf-8", "surrogatepass")
    head = _HEAD.pack(
        len(end.token_ids),
        end.num_prompt_tokens,
        end.original_tokens,
        _NONE if end.last_token is None else end.last_token,
        end.first_state,
        end.num_states,
        len(end.norm_sums),
        _NONE if end.positions is None else len(end.positions),
        end.loss_mask is not None,
        _NONE if identifier is None else len(identifier),
    )
    return b"".join(
        (
            head,
            _bytes_of(end.token_ids, "<i8"),
            _bytes_of(end.norm_sums, "<f8"),
            _bytes_of(end.max_abs, "<f8"),
            b"" if end.positions is None else _bytes_of(end.positions, "<i4"),
            b"" if end.loss_mask is None else _bytes_of(end.loss_mask, "u1"),
            identifier or b"",
        )
    )


def decode_sample_end(row: int, data: bytes) -> SampleEnd:
    """The sample that a record tells of; its arrays are views of `data`.

    Raises:
        RingCorruptError: when the lengths in the record do not add up to its size.
    """
    if len(data) < _HEAD.size:
        raise RingCorruptError(f"row {row}: an end-of-sample record has at least {_HEAD.size} bytes; got {len(data)}")
    tokens, prompt, original, last, first_state, states, columns, positions, has_mask, id_bytes = _HEAD.unpack_from(
        data
    )
    expected = _HEAD.size + 8 * tokens + 16 * columns + 4 * max(0, positions) + tokens * has_mask + max(0, id_bytes)
    in_range = min(tokens, columns) >= 0 and min(positions, id_bytes) >= _NONE and has_mask in (0, 1)
    if expected != len(data) or not in_range:
        raise RingCorruptError(f"row {row}: the end-of-sample record has {len(data)} bytes, its head says {expected}")
    reader = _Reader(data, _HEAD.size)
    return SampleEnd(
        row=row,
        token_ids=reader.array("<i8", tokens),
        norm_sums=reader.array("<f8", columns),
        max_abs=reader.array("<f8", columns),
        positions=None if positions == _NONE else reader.array("<i4", positions),
        loss_mask=reader.array("u1", tokens) if has_mask else None,
        id=None if id_bytes == _NONE else reader.text(row, id_bytes),
        num_prompt_tokens=prompt,
        original_tokens=original,
        last_token=None if last == _NONE else last,
        first_state=first_state,
        num_states=states,
    )


class _Reader:
    """Takes one array after another from a buffer."""

    def __init__(self, data: bytes, offset: int) -> None:
        self._data = data
        self._offset = offset

    def array(self, dtype: str, count: int) -> NDArray[Any]:
        """The next `count` elements."""
        values = np.frombuffer(self._data, dtype, count, self._offset)
        self._offset += values.nbytes
        return values

    def text(self, row: int, num_bytes: int) -> str:
        """The next `num_bytes` as text."""
        try:
            return self.array("u1", num_bytes).tobytes().decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise RingCorruptError(f"row {row}: the sample's id is not UTF-8: {error}") from None


def _bytes_of(values: NDArray[np.generic], dtype: str) -> bytes:
    return np.ascontiguousarray(values, dtype).tobytes()
