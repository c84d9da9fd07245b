"""What one forward pass must know about its packed sequences.

Shapes: B sequences, T packed tokens of all of them. The tokens of one sequence are neighbours, and the
sequences stand in this order, so that each kind is one range of tokens and one kernel launch a layer:

    | decodes: 1 token, context | extends: n tokens, context | prefills: n tokens, no context |
    0 ................................................................................ T

A decode is an extend of one token: both read K and V through the block table. A prefill attends to the K
and V of this very step, which are still contiguous, and needs no KV cache at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate

import torch

from drillcore_kernels.ops import PlanTiles


class AttentionKind(Enum):
    """Where the keys and values of a group of sequences are read."""

    DECODE = "decode"
    """One new token a sequence; K and V in the KV cache."""
    EXTEND = "extend"
    """New tokens after a context that is in the KV cache; the new K and V are written there first."""
    PREFILL = "prefill"
    """No context: K and V are those of this step."""


@dataclass(frozen=True)
class AttentionGroup:
    """Neighbouring sequences of one kind."""

    kind: AttentionKind
    tokens: slice
    """The group's range of the T packed tokens."""
    query_lens: tuple[int, ...]
    """New tokens of each sequence, on the host."""
    kv_lens: tuple[int, ...]
    """Context and new tokens of each sequence, on the host."""
    cu_seqlens_q: torch.Tensor
    """int32 [B + 1] on the device: first token of each sequence, counted from the group's first."""
    seq_lens: torch.Tensor
    """int32 [B] on the device: `kv_lens`."""
    block_table: torch.Tensor | None
    """int32 [B, blocks] on the device, padded with the null block; None for prefills."""
    max_seqlen_q: int
    max_seqlen: int
    tiles: torch.Tensor | None
    """What `Ops.plan_tiles` gave for these lengths."""


@dataclass(frozen=True)
class AttentionMetadata:
    """The attention of one step. Valid for that step only."""

    groups: tuple[AttentionGroup, ...]
    """In token order; together they cover the T tokens."""
    slot_mapping: torch.Tensor | None
    """int64 [T] on the device: the KV cache slot of each token; None: K and V are not kept."""

    @classmethod
    def build(
        cls,
        query_lens: Sequence[int],
        kv_lens: Sequence[int],
        *,
        block_table: torch.Tensor | None = None,
        slot_mapping: torch.Tensor | None = None,
        device: torch.device | str = "cpu",
        plan_tiles: PlanTiles | None = None,
    ) -> AttentionMetadata:
        """The metadata of B sequences that already stand in the order decodes, extends, prefills.

        Args:
            query_lens: new tokens of each sequence, all > 0.
            kv_lens: context and new tokens of each sequence.
            block_table: int32 [B, blocks] in host memory; rows of prefills are not read. Needed, like the slots,
                when a sequence has context.
            slot_mapping: int64 [T] in host memory, or on the device already.
            device: where the kernels run. Copies to it are asynchronous.
            plan_tiles: the decoder's `ops.plan_tiles`.

        Raises:
            ValueError: the order is another one, a length is impossible, or block table or slots are missing.
        """
        kinds = [_kind_of(query_len, kv_len) for query_len, kv_len in zip(query_lens, kv_lens, strict=True)]
        ranges = _ranges(kinds)
        if (block_table is None or slot_mapping is None) and set(kinds) - {AttentionKind.PREFILL}:
            raise ValueError("a sequence with context needs a block table and slots")
        starts = [0, *accumulate(query_lens)]
        groups = tuple(
            _group(kind, rows, starts, query_lens, kv_lens, block_table, torch.device(device), plan_tiles)
            for kind, rows in ranges
        )
        slots = None if slot_mapping is None else _to_device(slot_mapping, torch.device(device))
        return cls(groups, slots)


def _kind_of(query_len: int, kv_len: int) -> AttentionKind:
    if not 0 < query_len <= kv_len:
        raise ValueError(f"a sequence needs 0 < query_len <= kv_len; got {query_len} and {kv_len}")
    if query_len == kv_len:
        return AttentionKind.PREFILL
    return AttentionKind.DECODE if query_len == 1 else AttentionKind.EXTEND


def _ranges(kinds: Sequence[AttentionKind]) -> list[tuple[AttentionKind, slice]]:
    """The range of sequences of each kind that occurs, in the one allowed order."""
    ranges, start = [], 0
    for kind in AttentionKind:
        count = kinds.count(kind)
        if kinds[start : start + count] != [kind] * count:
            raise ValueError(f"sequences must stand in the order decodes, extends, prefills; got {kinds}")
        if count:
            ranges.append((kind, slice(start, start + count)))
        start += count
    return ranges


def _group(
    kind: AttentionKind,
    rows: slice,
    starts: Sequence[int],
    query_lens: Sequence[int],
    kv_lens: Sequence[int],
    block_table: torch.Tensor | None,
    device: torch.device,
    plan_tiles: PlanTiles | None,
) -> AttentionGroup:
    first, last = starts[rows.start], starts[rows.stop]
    cu_seqlens = [start - first for start in starts[rows.start : rows.stop + 1]]
    table = None if kind is AttentionKind.PREFILL or block_table is None else block_table[rows]
    tiled = plan_tiles is not None and kind is not AttentionKind.DECODE
    return AttentionGroup(
        kind=kind,
        tokens=slice(first, last),
        query_lens=tuple(query_lens[rows]),
        kv_lens=tuple(kv_lens[rows]),
        cu_seqlens_q=_int32(cu_seqlens, device),
        seq_lens=_int32(kv_lens[rows], device),
        block_table=None if table is None else _to_device(table, device),
        max_seqlen_q=max(query_lens[rows]),
        max_seqlen=max(kv_lens[rows]),
        tiles=plan_tiles(query_lens[rows], kv_lens[rows], device) if tiled and plan_tiles is not None else None,
    )


def _int32(values: Sequence[int], device: torch.device) -> torch.Tensor:
    return _to_device(torch.tensor(values, dtype=torch.int32), device)


def _to_device(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy that nobody waits for: from pageable memory it would wait for the stream."""
    if device.type == "cuda" and values.device.type == "cpu" and not values.is_pinned():
        values = values.pin_memory()
    return values.to(device, non_blocking=True)
