"""What a part holds: its tensors in file order, its header block and its size.

A part is a safetensors file: eight bytes of header length, the header as JSON, the tensors. Our header is
padded with spaces to a block whose size is known before the first state is: the states stream behind it,
and the header is written last. With layout PerSample the states stand in a file for each row, and the part holds the
rest, and what is needed to check those files. Source of the layout: the safetensors format description,
https://github.com/huggingface/safetensors#format.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from drillcore.dtypes import StoreDType
from drillcore.layout import FORMAT_VERSION
from drillcore.manifest import Manifest
from drillcore.sample_schema import HIDDEN_STATES, SampleFileSchema
from drillcore.tensor_header import LENGTH_BYTES, TensorSpec, header_bytes, padded_header, widest_header_bytes

PADDING = "padding"
SAMPLE_BYTES = "sample_bytes"
SAMPLE_XXH3_64 = "sample_xxh3_64"

_BLOCK_BYTES = 4096
_TAIL = (
    *("token_ids", "cu_seqlens", "cu_states", "rows", "num_prompt_tokens", "original_tokens", "last_token"),
    *("cu_ids", "norm_sums", "max_abs", "positions", "loss_mask", "has_id", "ids"),
)


@dataclass(frozen=True)
class PartSchema:
    """What all parts of one output have in common."""

    store_dtype: StoreDType
    num_columns: int
    hidden_size: int
    every_token: bool
    """Whether each token has a state; else the parts carry `cu_states`, and `positions` unless they are means."""
    means: bool
    """Whether a state is a mean over tokens, so that it has no position."""
    metadata: Mapping[str, str]
    per_sample: bool = False
    """Whether the states stand in files of their own, one a row."""

    @classmethod
    def of(cls, manifest: Manifest) -> PartSchema:
        """The parts of the output that a manifest describes."""
        return cls(
            store_dtype=manifest.store_dtype,
            num_columns=len(manifest.columns),
            hidden_size=manifest.hidden_size,
            every_token=manifest.positions == "All",
            means=manifest.positions == "Mean",
            metadata={
                "format": "drillcore",
                "formatVersion": str(FORMAT_VERSION),
                "identity": manifest.identity_sha256,
                "layers": json.dumps(list(manifest.layers)),
                "finalNorm": json.dumps(manifest.final_norm),
                "dtype": manifest.store_dtype.value,
            },
            per_sample=manifest.layout == "PerSample",
        )

    @cached_property
    def sample_file(self) -> SampleFileSchema:
        """What the file of one row holds, with layout PerSample."""
        return SampleFileSchema(self.store_dtype, self.num_columns, self.hidden_size, self.metadata)

    @property
    def state_bytes(self) -> int:
        """Bytes of one token's states in all columns."""
        return self.num_columns * self.hidden_size * self.store_dtype.itemsize

    @property
    def has_positions(self) -> bool:
        """Whether a part carries `positions`."""
        return not self.every_token and not self.means

    @cached_property
    def header_block_bytes(self) -> int:
        """Bytes before the first state: the widest header that a part of this schema can need."""
        own = (SAMPLE_BYTES, SAMPLE_XXH3_64) if self.per_sample else (HIDDEN_STATES, PADDING)
        length = LENGTH_BYTES + widest_header_bytes((*own, *_TAIL), self.metadata)
        return -(-length // _BLOCK_BYTES) * _BLOCK_BYTES

    def header_block(self, tensors: Mapping[str, TensorSpec]) -> bytes:
        """The header block of a part with these tensors, in file order."""
        return padded_header(header_bytes(tensors, self.metadata), self.header_block_bytes)

    def part_bytes(self, *, samples: int, tokens: int, states: int, id_bytes: int = 0, loss_mask: bool = False) -> int:
        """Size of a part with that much in it, and of its rows' own files.

        Args:
            samples: rows in the part.
            tokens: of all their sequences.
            states: stored token states.
            id_bytes: of all ids in UTF-8.
            loss_mask: whether the dataset has a loss mask.
        """
        int64 = np.dtype(np.int64).itemsize
        columns_per_sample = 6 + 2 * self.num_columns
        tail = int64 * (tokens + samples * columns_per_sample + 2) + samples + id_bytes
        if not self.every_token:
            tail += int64 * (samples + 1)
        if self.has_positions:
            tail += 4 * states
        if loss_mask:
            tail += tokens
        if self.per_sample:
            # Two columns of the table, and what each file has beside its states.
            tail += int64 * (2 * samples + tokens) + samples * self.sample_file.header_block_bytes
        return self.header_block_bytes + states * self.state_bytes + tail
