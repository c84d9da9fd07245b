"""Random numbers that depend on seed, row, position and token id only: no generator, no state.

A generator's state would depend on what was sampled before: on the batch, on the order of the rows, on where a shard
was resumed. Generators per row would have to be kept, and on a GPU drawn from one by one. A hash of the counter
(seed, row, position, token id) needs neither, is elementwise, and gives the same bits on a CPU and on CUDA. The idea
is Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (2011); the mixers are splitmix64 (Steele, Lea and
Flood, 2014) on the host and MurmurHash3's fmix32 (Appleby) on the device.

Shapes: N sampled rows of a step, V vocabulary.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_UNIFORM_BITS = 23
"""(x + 1/2) / 2^23 is exact in float32, and neither 0 nor 1."""


def row_keys(seeds: NDArray[np.uint64], rows: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Keys [N] of rows [N] of jobs with these seeds [N]: hash(seed, row)."""
    return _splitmix64(_splitmix64(seeds) + rows)


def token_keys(keys_of_rows: NDArray[np.uint64], positions: NDArray[np.int64]) -> NDArray[np.int32]:
    """Keys [N, 2] for the tokens at `positions` [N] of rows with these keys [N]."""
    keys = _splitmix64(keys_of_rows + positions.astype(np.uint64) * _GOLDEN)
    return keys.view(np.int32).reshape(-1, 2)


def gumbel_noise(keys: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """Standard Gumbel noise [N, V] float32, for int32 keys [N, 2], on their device.

    The argmax of logits + noise is a draw from softmax(logits).
    """
    bits = torch.arange(vocab_size, dtype=torch.int32, device=keys.device) + keys[:, :1]
    bits = _fmix32(_fmix32(bits).bitwise_xor_(keys[:, 1:]))
    uniform = _shifted(bits, 32 - _UNIFORM_BITS).to(torch.float32).add_(0.5).mul_(2.0**-_UNIFORM_BITS)
    return uniform.log_().neg_().log_().neg_()


def _splitmix64(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    mixed = values + _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _fmix32(bits: torch.Tensor) -> torch.Tensor:
    """Mixes int32 in place; products wrap."""
    bits.bitwise_xor_(_shifted(bits, 16)).mul_(_signed(0x85EBCA6B))
    bits.bitwise_xor_(_shifted(bits, 13)).mul_(_signed(0xC2B2AE35))
    return bits.bitwise_xor_(_shifted(bits, 16))


def _shifted(bits: torch.Tensor, count: int) -> torch.Tensor:
    """Logical shift to the right; torch's own keeps the sign."""
    return (bits >> count).bitwise_and_((1 << (32 - count)) - 1)


def _signed(constant: int) -> int:
    """The int32 with these 32 bits."""
    return constant - (1 << 32)
