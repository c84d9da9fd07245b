"""The owner of block ids: admission by reservation, prefix hits, growth, release.

A request is admitted only if every block that it can ever need is free or shared, and those are promised to it.
So a running request always gets its next block, and preemption does not exist. Blocks are taken only when a step
needs them: until then they go on serving as cached prefixes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto

from drillcore_server.engine.block_pool import BlockPool
from drillcore_server.engine.config import EngineConfig, num_blocks_for
from drillcore_server.engine.prefix_cache import PrefixCache, PrefixNode
from drillcore_server.engine.request import Sequence


class Admission(Enum):
    """What became of a request that asked for its blocks."""

    ADMITTED = auto()
    NO_BLOCKS = auto()
    """Too few blocks are available now."""
    AWAITS_PREFIX = auto()
    """Another request is about to compute a block of its prefix."""


@dataclass(slots=True)
class PrefixCounters:
    """How far prefix caching helped."""

    queries: int = 0
    """Tokens of admitted requests."""
    hits: int = 0
    """Those of them that were not computed again."""
    waits: int = 0
    """Requests that waited for another one to compute their prefix."""


@dataclass(slots=True)
class KVCacheManager:
    """Gives sequences their blocks. The only writer of a sequence's block fields."""

    config: EngineConfig
    counters: PrefixCounters = field(default_factory=PrefixCounters)
    pool: BlockPool = field(init=False)
    _prefixes: PrefixCache = field(init=False)

    def __post_init__(self) -> None:
        """Makes the pool and the prefix cache."""
        self.pool = BlockPool(self.config.num_blocks)
        self._prefixes = PrefixCache(self.config.block_size)

    def blocks_needed(self, num_slots: int) -> int:
        """Blocks for a request of `num_slots` slots, without any prefix hit."""
        return num_blocks_for(num_slots, self.config.block_size)

    def admit(self, sequence: Sequence) -> Admission:
        """Reserves all blocks of a waiting sequence, and holds those of its cached prefix.

        On success `num_computed_tokens` stands after the prefix hit. Otherwise only `awaited_prefix` may change.
        """
        awaited = sequence.awaited_prefix
        if awaited is not None and awaited.pending:
            return Admission.AWAITS_PREFIX
        nodes = self._find_prefix(sequence) if self.config.prefix_caching else []
        if nodes and nodes[-1].pending:
            self.counters.waits += sequence.awaited_prefix is None
            sequence.awaited_prefix = nodes[-1]
            return Admission.AWAITS_PREFIX
        return self._reserve(sequence, nodes)

    def _reserve(self, sequence: Sequence, nodes: list[PrefixNode]) -> Admission:
        hits = [node.block for node in nodes if node.block is not None]
        num_new = self.blocks_needed(sequence.request.num_slots) - len(hits)
        num_hits_from_free = sum(map(self.pool.is_free, hits))
        if num_new + num_hits_from_free > self.pool.num_available:
            return Admission.NO_BLOCKS
        self.pool.hold(hits)
        self.pool.reserve(num_new)
        sequence.block_ids, sequence.num_reserved_blocks = hits, num_new
        sequence.num_computed_tokens = len(hits) * self.config.block_size
        sequence.awaited_prefix = None
        self.counters.queries += sequence.num_tokens
        self.counters.hits += sequence.num_computed_tokens
        if self.config.prefix_caching:
            request = sequence.request
            added = self._prefixes.extend(nodes, request.prompt_token_ids, generates=request.generates)
            sequence.prefix_nodes = nodes + added
        return Admission.ADMITTED

    def _find_prefix(self, sequence: Sequence) -> list[PrefixNode]:
        request = sequence.request
        return self._prefixes.find(request.prompt_token_ids, generates=request.generates)

    def grow(self, sequence: Sequence, num_new_tokens: int) -> bool:
        """Takes the blocks that the next `num_new_tokens` tokens need; gives whether there were any."""
        num_tokens = sequence.num_computed_tokens + num_new_tokens
        num_new = self.blocks_needed(num_tokens) - len(sequence.block_ids)
        if num_new <= 0:
            return False
        sequence.block_ids += self.pool.take(num_new)
        sequence.num_reserved_blocks -= num_new
        return True

    def publish_prefix(self, sequence: Sequence) -> None:
        """Lets later steps hit the whole blocks that scheduled steps compute. Called when a step is scheduled."""
        num_whole = min(sequence.num_computed_tokens // self.config.block_size, len(sequence.prefix_nodes))
        for index in range(num_whole - 1, -1, -1):
            node = sequence.prefix_nodes[index]
            if not node.pending:
                break
            self.pool.set_content(sequence.block_ids[index], node)

    def free(self, sequence: Sequence) -> None:
        """Releases everything the sequence holds or was promised. Nobody may still copy from its blocks."""
        self._drop_pending(sequence)
        self.pool.unreserve(sequence.num_reserved_blocks)
        self.pool.release(sequence.block_ids)
        sequence.block_ids, sequence.num_reserved_blocks = [], 0

    def stop_computing(self, sequence: Sequence) -> None:
        """Gives back what was promised; the blocks held stay, since copies may still read them."""
        self._drop_pending(sequence)
        self.pool.unreserve(sequence.num_reserved_blocks)
        sequence.num_reserved_blocks = 0

    def check_integrity(self, live: Iterable[Sequence]) -> None:
        """Raises `AssertionError` unless free + cached + in use = total and promises add up."""
        live = list(live)
        self.pool.check_integrity(sequence.block_ids for sequence in live)
        promised = sum(sequence.num_reserved_blocks for sequence in live)
        assert self.pool.num_free - self.pool.num_available == promised, "promises do not add up"

    def _drop_pending(self, sequence: Sequence) -> None:
        for node in sequence.prefix_nodes:
            if node.pending:
                node.drop()
        sequence.prefix_nodes = []
