"""Which prefixes have blocks: a hash chain over the token ids of whole blocks.

An entry's key is the entry of the block before it and the block's own token ids. A dictionary compares keys
after hashing them, so equal hashes of different prefixes never match, by induction along the chain.

There are two chains: blocks of requests that only extract lack the keys and values of the model's upper layers, which
generation would read.

An entry is *pending* between the admission of the request that will compute its block and the step that
does: others with the same prefix wait for it instead of computing it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(slots=True, eq=False)
class PrefixNode:
    """A prefix that ends with a whole block. Lives in its parent's `children`, keyed by the block's token ids."""

    parent: PrefixNode | None
    key: bytes
    block: int | None = None
    """The block that holds it; None: pending, or dropped."""
    dropped: bool = False
    """Whether its content is gone. Children of a dropped node cannot be found any more."""
    children: dict[bytes, PrefixNode] = field(default_factory=dict)

    @property
    def pending(self) -> bool:
        """Whether a running request is about to compute it."""
        return self.block is None and not self.dropped

    def drop(self) -> None:
        """Forgets the prefix: its block is about to be overwritten, or was never computed."""
        self.block, self.dropped = None, True
        if self.parent is not None and self.parent.children.get(self.key) is self:
            del self.parent.children[self.key]


class PrefixCache:
    """Finds and adds prefixes; knows nothing of free or held blocks."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._roots = {generates: PrefixNode(None, b"") for generates in (False, True)}

    def find(self, token_ids: NDArray[np.int64], *, generates: bool = False) -> list[PrefixNode]:
        """Known nodes from the first block on; the last of them may be pending.

        The block that ends the sequence is never matched whole, so at least one token is left to compute.
        """
        nodes: list[PrefixNode] = []
        node = self._roots[generates]
        for index in range((len(token_ids) - 1) // self._block_size):
            child = node.children.get(self._key(token_ids, index))
            if child is None:
                break
            nodes.append(child)
            if child.pending:
                break
            node = child
        return nodes

    def extend(
        self, nodes: Sequence[PrefixNode], token_ids: NDArray[np.int64], *, generates: bool = False
    ) -> list[PrefixNode]:
        """Adds pending nodes after `nodes` for each further whole block of `token_ids` that has none.

        Gives the new nodes: fewer than there are blocks if somebody else's node stands in the way, which is then
        the one that others find.
        """
        node = nodes[-1] if nodes else self._roots[generates]
        added: list[PrefixNode] = []
        for index in range(len(nodes), len(token_ids) // self._block_size):
            key = self._key(token_ids, index)
            if key in node.children:
                break
            node.children[key] = child = PrefixNode(node, key)
            added.append(child)
            node = child
        return added

    def _key(self, token_ids: NDArray[np.int64], index: int) -> bytes:
        start = index * self._block_size
        return token_ids[start : start + self._block_size].tobytes()
