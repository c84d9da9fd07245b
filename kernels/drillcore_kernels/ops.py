"""The signatures that every implementation of the operations shares.

Shape legend
    T tokens of a step, packed over its sequences     B sequences      D hidden size
    Hq, Hkv query and key/value heads                 Dh head size     F MLP size
    C columns of the hidden cache                     P rows wanted    bs block size (64)

Lengths and offsets are int32, slots and positions int64. No operation waits for the device. Tensors called
`out` are made when None; every element of an output is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from drillcore_kernels.capture import Capture
from drillcore_kernels.kinds import Activation, NormKind


class AddRmsNorm(Protocol):
    """Residual add, RMS norm and capture in one pass."""

    def __call__(
        self,
        x: Tensor,
        residual: Tensor | None,
        weight: Tensor | None,
        eps: float,
        kind: NormKind = NormKind.LLAMA,
        *,
        capture: Capture | None = None,
        capture_normed: Capture | None = None,
    ) -> tuple[Tensor | None, Tensor]:
        """Give (norm(r) * weight, r) for r = x + residual.

        Args:
            x: [T, D].
            residual: [T, D], updated in place to r and returned; None means r is x itself (and is returned).
            weight: [D]; None leaves the norm out, and the first result is None.
            eps: Added to the mean square.
            kind: Cast order and meaning of the weight.
            capture: Where r goes, with its statistics.
            capture_normed: Where the normed value goes; needs a weight.
        """
        ...


class RopeKvWrite(Protocol):
    """Query/key norm, rotary embedding and the write of keys and values to their pages."""

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cos: Tensor | None,
        sin: Tensor | None,
        positions: Tensor,
        *,
        q_norm: Tensor | None = None,
        k_norm: Tensor | None = None,
        eps: float = 0.0,
        norm_kind: NormKind = NormKind.LLAMA,
        k_cache: Tensor | None = None,
        v_cache: Tensor | None = None,
        slot_mapping: Tensor | None = None,
    ) -> None:
        """Rotate q and k in place by half-split (NeoX) rotation; write k and v to the KV cache.

        Args:
            q: [T, Hq, Dh], k and v: [T, Hkv, Dh]: views of one packed buffer are fine; q and k are modified.
            k: See q.
            v: See q.
            cos: [M, R/2] float32, M positions and a rotary size R <= Dh; None for a layer without rotation.
            sin: As cos.
            positions: [T] int64, each < M.
            q_norm: [Dh] weight of the norm over each query head before the rotation; None for none.
            k_norm: [Dh], as q_norm, for keys.
            eps: Of those norms.
            norm_kind: Of those norms.
            k_cache: [num_blocks, bs, Hkv, Dh] contiguous; None when no later step reads these keys.
            v_cache: As k_cache; both or neither.
            slot_mapping: [T] int64 slots; needed with the caches.
        """
        ...


class SiluMul(Protocol):
    """The gated MLP's elementwise part."""

    def __call__(self, gate_up: Tensor, activation: Activation = Activation.SILU) -> Tensor:
        """Give activation(gate) * up, [T, F], for gate_up [T, 2F] (gate first), computed in float32."""
        ...


class VarlenPrefill(Protocol):
    """Causal attention over packed sequences whose keys and values are all of this step."""

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cu_seqlens: Tensor,
        *,
        max_seqlen: int,
        scale: float,
        window: int | None = None,
        softcap: float | None = None,
        sinks: Tensor | None = None,
        tiles: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        """Give [T, Hq, Dh].

        Args:
            q: [T, Hq, Dh]; k and v: [T, Hkv, Dh]; Hq is a multiple of Hkv; strided views are fine.
            k: See q.
            v: See q.
            cu_seqlens: [B + 1] int32, sequence b is rows cu_seqlens[b] to cu_seqlens[b + 1].
            max_seqlen: At least the longest sequence's length.
            scale: Of the scores; positive.
            window: A query at position i sees keys j with i - window < j <= i; None for all j <= i.
            softcap: Scores become softcap * tanh(score / softcap); None for none.
            sinks: [Hq] scores of a key without a value, which each softmax includes; None for none.
            tiles: What `Ops.plan_tiles` gave for these lengths; None leaves the order to the kernel.
            out: [T, Hq, Dh] contiguous.
        """
        ...


class PagedExtend(Protocol):
    """Causal attention of new queries over the pages of their sequences."""

    def __call__(
        self,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        block_table: Tensor,
        cu_seqlens_q: Tensor,
        seq_lens: Tensor,
        *,
        max_seqlen_q: int,
        max_seqlen: int,
        scale: float,
        window: int | None = None,
        softcap: float | None = None,
        sinks: Tensor | None = None,
        tiles: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        """Give [T, Hq, Dh]: the last queries of each sequence over all its keys (bottom-right causal).

        Args:
            q: [T, Hq, Dh], packed by cu_seqlens_q.
            k_cache: [num_blocks, bs, Hkv, Dh] contiguous, this step's keys already written; v_cache likewise.
            v_cache: See k_cache.
            block_table: [B, max_blocks] int32; entries beyond a sequence's blocks are never read.
            cu_seqlens_q: [B + 1] int32 offsets of each sequence's queries.
            seq_lens: [B] int32 lengths including this step's tokens.
            max_seqlen_q: At least the largest number of queries of a sequence.
            max_seqlen: At least the largest of seq_lens.
            scale: See `VarlenPrefill`; so are window, softcap, sinks, tiles and out.
            window: See scale.
            softcap: See scale.
            sinks: See scale.
            tiles: See scale.
            out: See scale.
        """
        ...


class PagedDecode(Protocol):
    """Attention of one new query for each sequence over its pages."""

    def __call__(
        self,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        block_table: Tensor,
        seq_lens: Tensor,
        *,
        scale: float,
        window: int | None = None,
        softcap: float | None = None,
        sinks: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        """Give [B, Hq, Dh] for q [B, Hq, Dh], the query of each sequence's last token; see `PagedExtend`."""
        ...


class GatherRows(Protocol):
    """Wanted positions out of the hidden cache."""

    def __call__(self, cache: Tensor, slots: Tensor, out: Tensor | None = None) -> Tensor:
        """Give [P, C, D], the rows at `slots` ([P] int64), from cache [num_blocks, bs, C, D] contiguous."""
        ...


class MeanRows(Protocol):
    """Means over positions of the hidden cache."""

    def __call__(self, cache: Tensor, slots: Tensor, cu_rows: Tensor, out: Tensor | None = None) -> Tensor:
        """Give [B, C, D]: the mean, in float32, of the rows slots[cu_rows[b]:cu_rows[b + 1]].

        A sample without rows gives NaN. cu_rows is [B + 1] int32, slots [P] int64.
        """
        ...


class PlanTiles(Protocol):
    """The order of an attention's work, decided on the CPU once for all layers of a step."""

    def __call__(self, query_lens: Sequence[int], seq_lens: Sequence[int], device: torch.device) -> Tensor | None:
        """Give [W, 2] int32 (sequence, query tile) pairs on the device, longest first; None where unused."""
        ...


@dataclass(frozen=True)
class Ops:
    """One implementation of all operations."""

    name: str
    """`reference` or `triton`, as it stands in logs and benchmark results."""
    add_rms_norm: AddRmsNorm
    rope_kv_write: RopeKvWrite
    silu_mul: SiluMul
    varlen_prefill: VarlenPrefill
    paged_extend: PagedExtend
    paged_decode: PagedDecode
    gather_rows: GatherRows
    mean_rows: MeanRows
    plan_tiles: PlanTiles
