"""Blocks of the paged caches: who holds which, which are free, and which free ones still have content.

A block is in exactly one of three places:

    | in use: holders > 0 | cached: no holder, content of a known prefix, LRU order | empty: no holder, no content |
      num_in_use + num_cached + num_empty = num_blocks - 1     (block 0, the null block, is never given out)

One block id serves the KV cache and the hidden cache, so that hidden states live and die with their keys and
values. The pool knows nothing of tensors.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence

from drillcore_server.engine.prefix_cache import PrefixNode

NULL_BLOCK = 0
"""Kept finite, never given out: what padding points to."""


class BlockPool:
    """Gives out and takes back block ids. Reservations promise blocks before they are taken."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._holders = [0] * num_blocks
        self._node_of: list[PrefixNode | None] = [None] * num_blocks
        self._empty = deque(range(NULL_BLOCK + 1, num_blocks))
        self._cached: OrderedDict[int, None] = OrderedDict()
        self._num_reserved = 0

    @property
    def num_free(self) -> int:
        """Blocks without a holder, cached ones included."""
        return len(self._empty) + len(self._cached)

    @property
    def num_available(self) -> int:
        """Free blocks that are promised to nobody."""
        return self.num_free - self._num_reserved

    def is_free(self, block: int) -> bool:
        """Whether nobody holds the block, so that holding it takes a free one away."""
        return self._holders[block] == 0

    def reserve(self, count: int) -> None:
        """Promises `count` blocks to a request; they are then always there for `take`."""
        if not 0 <= count <= self.num_available:
            raise ValueError(f"cannot reserve {count} blocks; {self.num_available} are available")
        self._num_reserved += count

    def unreserve(self, count: int) -> None:
        """Gives back a promise of `count` blocks."""
        if not 0 <= count <= self._num_reserved:
            raise ValueError(f"cannot give back {count} reserved blocks; {self._num_reserved} are reserved")
        self._num_reserved -= count

    def take(self, count: int) -> list[int]:
        """Gives `count` blocks out of the caller's reservation, empty ones first, then the least recently used.

        A cached block loses its content: its prefix node is dropped. Empty blocks come in the order in which they
        were given back, so that a request's blocks tend to be consecutive, which makes its copies few.
        """
        self.unreserve(count)
        blocks = [self._empty.popleft() if self._empty else self._evict() for _ in range(count)]
        for block in blocks:
            self._holders[block] = 1
        return blocks

    def hold(self, blocks: Iterable[int]) -> None:
        """Adds a holder to blocks with content, taking them out of the free ones if they had none."""
        for block in blocks:
            if self._holders[block] == 0:
                del self._cached[block]
            self._holders[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """Takes a holder from each block. Of blocks with content, later ones are evicted first."""
        cached = []
        for block in blocks:
            if self._holders[block] < 1:
                raise ValueError(f"block {block} is released, but nobody holds it")
            self._holders[block] -= 1
            if self._holders[block] == 0:
                if self._node_of[block] is None:
                    self._empty.append(block)
                else:
                    cached.append(block)
        for block in reversed(cached):
            self._cached[block] = None

    def set_content(self, block: int, node: PrefixNode) -> None:
        """Records that a block in use holds the prefix of `node` from now on."""
        self._node_of[block] = node
        node.block = block

    def check_integrity(self, held: Iterable[Sequence[int]]) -> None:
        """Raises `AssertionError` unless every block is in one place, and `held` are exactly the holders."""
        holders = [0] * self.num_blocks
        for blocks in held:
            for block in blocks:
                holders[block] += 1
        assert holders == self._holders, "holders differ from the blocks of the live sequences"
        free = [*self._empty, *self._cached]
        in_use = [block for block, count in enumerate(holders) if count]
        assert sorted(free + in_use) == list(range(1, self.num_blocks)), "free + in use is not every block"
        assert all(self._node_of[block] is None for block in self._empty), "an empty block has content"
        for block, node in enumerate(self._node_of):
            assert node is None or node.block == block, f"block {block} and its prefix node disagree"
        assert all(self._node_of[block] is not None for block in self._cached), "a cached block has no content"
        assert 0 <= self._num_reserved <= self.num_free, "more blocks are reserved than free"

    def _evict(self) -> int:
        block, _ = self._cached.popitem(last=False)
        node = self._node_of[block]
        self._node_of[block] = None
        if node is not None:
            node.drop()
        return block
