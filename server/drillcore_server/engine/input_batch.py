"""One step's tensors: the only place that turns blocks into slots.

Shapes: T packed tokens, R of them wanted, B sequences, P states that the step makes available.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from drillcore_kernels.ops import PlanTiles
from drillcore_server.connector.host_memory import empty_host
from drillcore_server.connector.metadata import StepMetadata
from drillcore_server.engine.block_pool import NULL_BLOCK
from drillcore_server.engine.scheduler_output import ScheduledRequest, SchedulerOutput
from drillcore_server.models.attention import AttentionMetadata

_NOTHING = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class StepInputs:
    """What the forward pass, the sampler and the drafter need of one step. All tensors are on the device."""

    token_ids: torch.Tensor
    """int64 [T]."""
    positions: torch.Tensor
    """int64 [T]: index of each token in its sequence."""
    slot_mapping: torch.Tensor
    """int64 [T]: where each token's states go."""
    attention: AttentionMetadata
    wanted_rows: torch.Tensor | None
    """int64 [R], ascending: the packed tokens whose output of the last block is wanted; None: all, R = T."""
    sample_rows: torch.Tensor
    """int64: the wanted tokens whose logits are sampled, counted from 0 to R - 1, in batch order."""
    state_slots: NDArray[np.int64]
    """int64 [P] in host memory: slots of the states that the step makes available, prefix hits included."""
    device_state_slots: torch.Tensor
    """`state_slots` on the device."""
    generates: bool
    """Whether some request generates: every layer needs the keys and values of its prompt, also of a chunk of it that
    samples nothing yet."""


class InputBatch:
    """Keeps the block table of every request that has started, and builds each step's tensors."""

    def __init__(
        self,
        block_size: int,
        device: torch.device,
        plan_tiles: PlanTiles,
        *,
        keeps_kv: bool,
        skips_unwanted_rows: bool = False,
    ) -> None:
        """`keeps_kv`: whether there is a KV cache to write to; the last: see `EngineConfig`."""
        self._block_size = block_size
        self._device = device
        self._plan_tiles = plan_tiles
        self._keeps_kv = keeps_kv
        self._skips_unwanted_rows = skips_unwanted_rows
        self._tables: dict[int, NDArray[np.int64]] = {}

    def build(self, output: SchedulerOutput, metadata: StepMetadata) -> StepInputs:
        """The tensors of a step. Copies to the device are asynchronous, on the current stream."""
        self._update_tables(output)
        requests = output.requests
        tables = [self._tables[r.request.request_id] for r in requests]
        lens = np.array([len(r.token_ids) for r in requests])
        first_tokens = np.array([r.first_token for r in requests])
        ends = np.cumsum(lens)
        offsets = ends - lens - first_tokens
        positions = np.arange(output.num_tokens) - np.repeat(offsets, lens)
        slots = self._slots(tables, lens, positions)
        samples = np.array([r.samples for r in requests], dtype=bool)
        state_positions = [part.positions for part in metadata.slices]
        state_lens = np.array([len(positions) for positions in state_positions])
        state_slots = self._slots(tables, state_lens, np.concatenate(state_positions))
        token_ids = np.concatenate([r.token_ids for r in requests])
        sample_rows = ends[samples] - 1
        wanted = self._wanted_rows(state_positions, offsets, first_tokens, sample_rows, output.num_tokens)
        if wanted is not None:
            sample_rows = np.searchsorted(wanted, sample_rows)
        arrays = (token_ids, positions, slots, sample_rows, state_slots, _NOTHING if wanted is None else wanted)
        device_ids, device_positions, device_slots, device_sample_rows, device_state_slots, device_wanted = (
            self._to_device(*arrays)
        )
        return StepInputs(
            token_ids=device_ids,
            positions=device_positions,
            slot_mapping=device_slots,
            attention=self._attention(requests, tables, device_slots),
            wanted_rows=None if wanted is None else device_wanted,
            sample_rows=device_sample_rows,
            state_slots=state_slots,
            device_state_slots=device_state_slots,
            generates=any(r.request.generates for r in requests),
        )

    def _update_tables(self, output: SchedulerOutput) -> None:
        for request_id in output.ended:
            self._tables.pop(request_id, None)
        for scheduled in output.requests:
            self._set_table(scheduled.request.request_id, scheduled.block_ids)

    def _set_table(self, request_id: int, block_ids: tuple[int, ...] | None) -> None:
        """None means that the step brings no new blocks: the table stays as it is."""
        if block_ids is not None:
            self._tables[request_id] = np.array(block_ids, dtype=np.int64)

    def _slots(
        self, tables: Sequence[NDArray[np.int64]], lens: NDArray[np.int64], positions: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Slots of `positions`, which are `lens[b]` tokens of sequence b after those of the sequences before it."""
        num_blocks = np.array([len(table) for table in tables])
        table_starts = np.repeat(np.cumsum(num_blocks) - num_blocks, lens)
        index = positions // self._block_size
        blocks = np.concatenate(tables)[table_starts + index]
        return blocks * self._block_size + (positions - index * self._block_size)

    def _wanted_rows(
        self,
        state_positions: Sequence[NDArray[np.int64]],
        offsets: NDArray[np.int64],
        first_tokens: NDArray[np.int64],
        sample_rows: NDArray[np.int64],
        num_tokens: int,
    ) -> NDArray[np.int64] | None:
        """The packed tokens whose states or logits are wanted, ascending; None: all of them.

        `offsets[b]` is what a position of sequence b is away from its place in the packed tokens. Positions before
        `first_tokens[b]` are those of a prefix hit, which is not computed. At least one row is given, so that no
        kernel is launched over nothing.
        """
        if not self._skips_unwanted_rows:
            return None
        computed = [
            p[p >= first] + offset for p, first, offset in zip(state_positions, first_tokens, offsets, strict=True)
        ]
        if sum(map(len, computed)) == num_tokens:
            return None
        wanted = np.unique(np.concatenate((*computed, sample_rows)))
        if not len(wanted):
            wanted = np.array([num_tokens - 1])
        return None if len(wanted) == num_tokens else wanted

    def _attention(
        self, requests: Sequence[ScheduledRequest], tables: Sequence[NDArray[np.int64]], slots: torch.Tensor
    ) -> AttentionMetadata:
        return AttentionMetadata.build(
            [len(r.token_ids) for r in requests],
            [r.end_token for r in requests],
            block_table=self._block_table(requests, tables),
            slot_mapping=slots if self._keeps_kv else None,
            device=self._device,
            plan_tiles=self._plan_tiles,
        )

    def _block_table(
        self, requests: Sequence[ScheduledRequest], tables: Sequence[NDArray[np.int64]]
    ) -> torch.Tensor | None:
        """int32 [sequences with context, blocks] in host memory, padded with the null block."""
        num_rows = sum(r.first_token > 0 for r in requests)
        if num_rows == 0:
            return None
        width = max(len(table) for table in tables[:num_rows])
        table = empty_host((num_rows, width), torch.int32, self._device)
        rows = table.numpy()
        rows.fill(NULL_BLOCK)
        for row, block_ids in zip(rows, tables[:num_rows], strict=True):
            row[: len(block_ids)] = block_ids
        return table

    def _to_device(self, *arrays: NDArray[np.int64]) -> Sequence[torch.Tensor]:
        """int64 arrays on the device, by a single copy from pinned memory."""
        lens = [len(array) for array in arrays]
        staging = empty_host((sum(lens),), torch.int64, self._device)
        np.concatenate(arrays, out=staging.numpy())
        return list(torch.split(staging.to(self._device, non_blocking=True), lens))
