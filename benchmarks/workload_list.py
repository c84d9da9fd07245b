"""The workloads W1 to W6: which model, which prompts, which states.

| name | model | prompts | states |
|---|---|---|---|
| W1 | Llama-3.1-8B shape | 512 documents, lognormal, median 900 tokens | layers 2, 16, 29, 32, every token |
| W1-full-pool | as W1 | as W1, each continued by 320 tokens: more than the blocks hold at once | as W1 |
| W2 | Qwen3-0.6B shape | 8 sets of W1's documents | layers 2, 14, 25, 28, every token |
| W3 | as W1 | as W1 | layer 16, every token |
| W4 | as W1 | 256 documents | all 33 states, every token |
| W5 | as W1 | 64 groups of 8 prompts that share 1,024 of their 1,280 tokens | as W1 |
| W6 | as W1 | 10,000 prompts of 32 to 96 tokens | as W1, the last token only |
| W6-mid | as W1 | as W6 | layer 16, the last token only |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from documents import NUM_DOCUMENTS, document_lengths
from numpy.typing import NDArray

from drillcore_spec.enums import PositionsKind

Prompts = list[NDArray[np.int64]]
_NUM_PREFIX_TOKENS, _NUM_COMPLETION_TOKENS, _GROUP_SIZE = 1024, 256, 8
_MAX_MODEL_LEN, _NUM_CONTINUED_TOKENS = 4096, 320


@dataclass(frozen=True)
class Workload:
    """One job of the benchmark."""

    name: str
    model: str
    """Key of `random_model.CONFIGS`."""
    layers: tuple[int, ...]
    """Ids r_i, in the order of the columns."""
    make_prompts: Callable[[int, int], Prompts]
    """Number of prompts (or groups, or sets of documents) and size of the vocabulary to token ids."""
    count: int
    """First argument of `make_prompts`."""
    positions: PositionsKind = PositionsKind.ALL
    prefix_caching: bool = False
    max_num_batched_tokens: int = 8192
    max_model_len: int = _MAX_MODEL_LEN
    max_tokens: int = 0
    """Tokens to generate after each prompt."""
    ring_bytes: int = 2 << 30
    yardsticks: tuple[str, ...] = ()
    """Systems without files that it is compared with."""
    runs_as_job: bool = False
    """Whether it is also run as a job in processes of its own, and disturbed."""
    has_peer: bool = False
    """Whether transformers is measured, too."""
    expected_s: float = 20
    """Of the end-to-end run, on an H200."""

    def prompts(self, vocab_size: int) -> Prompts:
        """Token ids of every row; the same on each call."""
        return self.make_prompts(self.count, vocab_size)


def documents(num_documents: int, vocab_size: int) -> Prompts:
    """The first documents of set 0."""
    return _random_ids(document_lengths(0, num_documents), vocab_size)


def documents_with_room(num_documents: int, vocab_size: int) -> Prompts:
    """The first documents of set 0, cut so that each can be continued."""
    return [ids[: _MAX_MODEL_LEN - _NUM_CONTINUED_TOKENS] for ids in documents(num_documents, vocab_size)]


def document_sets(num_sets: int, vocab_size: int) -> Prompts:
    """Whole sets of documents, one after the other."""
    return _random_ids([n for seed in range(num_sets) for n in document_lengths(seed, NUM_DOCUMENTS)], vocab_size)


def short_prompts(num_prompts: int, vocab_size: int) -> Prompts:
    """Prompts of 32 to 96 tokens."""
    return _random_ids(np.random.default_rng(0).integers(32, 97, num_prompts).tolist(), vocab_size)


def shared_prefixes(num_groups: int, vocab_size: int) -> Prompts:
    """Groups of prompts with one prefix each, a group's prompts next to each other."""
    prefixes = _random_ids([_NUM_PREFIX_TOKENS] * num_groups, vocab_size)
    completions = iter(_random_ids([_NUM_COMPLETION_TOKENS] * num_groups * _GROUP_SIZE, vocab_size, seed=1))
    return [np.concatenate((prefix, next(completions))) for prefix in prefixes for _ in range(_GROUP_SIZE)]


def _random_ids(lengths: Sequence[int], vocab_size: int, seed: int = 0) -> Prompts:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, vocab_size, length) for length in lengths]


_EAGLE_LAYERS = (2, 16, 29, 32)
_LLAMA = "llama-3.1-8b"
_LAST = PositionsKind.LAST

_FORWARD, _COMPOSED = "drillcore-forward", "composed-forward"
_BOTH = (_COMPOSED, _FORWARD)

WORKLOADS = (
    Workload("W1", _LLAMA, _EAGLE_LAYERS, documents, NUM_DOCUMENTS, yardsticks=_BOTH, runs_as_job=True, has_peer=True),
    Workload("W3", _LLAMA, (16,), documents, NUM_DOCUMENTS, yardsticks=_BOTH),
    Workload("W6", _LLAMA, _EAGLE_LAYERS, short_prompts, 10_000, _LAST, has_peer=True),
    Workload("W6-mid", _LLAMA, (16,), short_prompts, 10_000, _LAST),
    Workload(
        "W2",
        "qwen3-0.6b",
        (2, 14, 25, 28),
        document_sets,
        8,
        max_num_batched_tokens=16_384,
        ring_bytes=4 << 30,
        yardsticks=_BOTH,
        has_peer=True,
    ),
    Workload("W4", _LLAMA, tuple(range(33)), documents, 256, ring_bytes=16 << 30),
    Workload(
        "W1-full-pool",
        _LLAMA,
        _EAGLE_LAYERS,
        documents_with_room,
        NUM_DOCUMENTS,
        max_tokens=_NUM_CONTINUED_TOKENS,
        expected_s=60,
    ),
    Workload("W5", _LLAMA, _EAGLE_LAYERS, shared_prefixes, 64, prefix_caching=True, yardsticks=(_FORWARD,)),
)
"""In the order in which they run: those that decide most come first."""

_SMOKE_COUNTS = {short_prompts: 40, shared_prefixes: 2}
_SMOKE_DOCUMENTS = 8


def _few_documents(num_documents: int, vocab_size: int) -> Prompts:
    """Documents of at most a hundred tokens."""
    return [ids[:100] for ids in documents(num_documents, vocab_size)]


def smoke(workload: Workload) -> Workload:
    """The same job over a tiny model: it shows that the benchmark runs, and measures nothing."""
    layers = tuple(dict.fromkeys(min(layer, 4) for layer in workload.layers))
    workload = replace(
        workload, model="tiny", layers=layers, ring_bytes=1 << 20, max_tokens=min(4, workload.max_tokens)
    )
    make = workload.make_prompts
    if make in (documents, documents_with_room, document_sets):
        return replace(workload, make_prompts=_few_documents, count=_SMOKE_DOCUMENTS)
    return replace(workload, count=_SMOKE_COUNTS[make])
