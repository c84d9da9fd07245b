"""A hidden cache that keeps every state of one step."""

from __future__ import annotations

import pytest
import torch

from drillcore_kernels import Capture


class RecordingSink:
    """Captures the ids asked for, and the final norm, of T tokens into poisoned caches."""

    def __init__(self, ids, num_tokens, hidden, *, final_norm=False, num_blocks=None, block_size=64):
        columns = len(ids) + final_norm
        num_blocks = num_blocks or -(-num_tokens // block_size) + 1
        self.cache = torch.full((num_blocks, block_size, columns, hidden), torch.nan)
        self.stats = torch.full((num_blocks, block_size, columns, 2), torch.nan)
        self.slots = torch.randperm((num_blocks - 1) * block_size)[:num_tokens] + block_size
        self.ids = list(ids)
        self.last_layer = max(ids)
        self.has_final_norm = final_norm
        self.asked = []

    def residual(self, i):
        self.asked.append(i)
        return self._capture(self.ids.index(i)) if i in self.ids else None

    def final_norm(self):
        return self._capture(len(self.ids)) if self.has_final_norm else None

    def _capture(self, column):
        return Capture(self.cache, self.stats, column, self.slots)

    def states(self, i):
        """r_i of every token, [T, D]."""
        return self._rows(self.cache, self.ids.index(i))

    def final_states(self):
        return self._rows(self.cache, len(self.ids))

    def stats_of(self, i):
        return self._rows(self.stats, self.ids.index(i))

    def _rows(self, cache, column):
        return cache.flatten(0, 1)[self.slots, column]


@pytest.fixture
def recording_sink():
    return RecordingSink
