"""What a file with one sample holds: `hidden_states`, `token_ids`, a header block in front, and its size.

Our header is padded with spaces to a block whose size is known before the first state is: the states stream behind
it, and the header is written last. It carries the checksum of all that follows it, so that a file that is found can
be told whole without anything beside it. Source of the format: https://github.com/huggingface/safetensors#format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from drillcore.dtypes import StoreDType
from drillcore.tensor_header import LENGTH_BYTES, TensorSpec, header_bytes, padded_header, widest_header_bytes

HIDDEN_STATES = "hidden_states"
TOKEN_IDS = "token_ids"
CHECKSUM = "xxh3_64"
"""Metadata key: 16 hexadecimal digits over the bytes behind the header block."""
LAST_TOKEN = "lastToken"
"""Metadata key: the token sampled last, which has no state; -1 when none was."""

_BLOCK_BYTES = 512
_TOKEN_BYTES = np.dtype(np.int64).itemsize
_WIDEST = {CHECKSUM: "f" * 16, LAST_TOKEN: str(-(2**63))}


@dataclass(frozen=True)
class SampleFileSchema:
    """What several sample files have in common: C columns of `hidden_size` elements a state."""

    store_dtype: StoreDType
    num_columns: int
    hidden_size: int
    metadata: Mapping[str, str]
    """Goes into `__metadata__`; checksum and last token are added to it."""

    @property
    def state_bytes(self) -> int:
        """Bytes of one token's states in all columns."""
        return self.num_columns * self.hidden_size * self.store_dtype.itemsize

    @cached_property
    def header_block_bytes(self) -> int:
        """Bytes before the first state."""
        length = LENGTH_BYTES + widest_header_bytes((HIDDEN_STATES, TOKEN_IDS), {**self.metadata, **_WIDEST})
        return -(-length // _BLOCK_BYTES) * _BLOCK_BYTES

    def header_block(self, states: int, tokens: int, checksum: str, last_token: int | None) -> bytes:
        """The header block of a file with so many states and tokens, and that checksum of what follows."""
        shape = (states, self.num_columns, self.hidden_size)
        tensors = {
            HIDDEN_STATES: TensorSpec(self.store_dtype.value, shape, states * self.state_bytes),
            TOKEN_IDS: TensorSpec("I64", (tokens,), tokens * _TOKEN_BYTES),
        }
        own = {CHECKSUM: checksum, LAST_TOKEN: str(-1 if last_token is None else last_token)}
        return padded_header(header_bytes(tensors, {**self.metadata, **own}), self.header_block_bytes)

    def file_bytes(self, states: int, tokens: int) -> int:
        """Size of a file with so many states and tokens."""
        return self.header_block_bytes + states * self.state_bytes + tokens * _TOKEN_BYTES


@dataclass(frozen=True)
class SampleFileInfo:
    """A finished sample file."""

    bytes: int
    xxh3_64: int
    """Over the bytes behind the header block, then over the header block."""
