"""Limits of one engine, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineConfig:
    """What bounds the work and the memory of one engine.

    Raises:
        ValueError: a limit is below its least useful value.
    """

    max_model_len: int
    """Tokens of the longest request, prompt and generated ones that are fed back; a longer one is refused."""

    num_blocks: int
    """Blocks of the KV cache and the hidden cache, block 0 (the null block) included."""

    max_num_batched_tokens: int = 8192
    """Token budget of a step. 8,192 fills an H200; 4,096 loses 3 %, 16,384 gains nothing."""

    max_num_seqs: int = 1024
    """Requests that may be running at once. 1,024 lets a step be filled with prompts of 8 tokens."""

    max_tokens: int = 0
    """Most tokens that a request may ask to be generated. 0: extraction only, so no lm_head is needed."""

    prefix_caching: bool = True
    """Whether blocks of finished requests serve later requests with the same prefix."""

    only_last: bool = False
    """Whether every request asks for its last token's state, so that no request needs a state of another's prefix."""

    block_size: int = 64
    """Tokens of a block: the tile of the attention kernels along the keys."""

    max_steps_in_flight: int = 3
    """Steps handed to the device before the host waits for the oldest. A CPU runs each step at once."""

    look_ahead: int = 512
    """Waiting requests that are considered for a step, and that are taken from a lazy source ahead of time."""

    def __post_init__(self) -> None:
        """Checks every limit."""
        least = {"max_model_len": 1, "num_blocks": 2, "max_num_batched_tokens": 1, "max_num_seqs": 1}
        least |= {"max_tokens": 0, "block_size": 1, "max_steps_in_flight": 1, "look_ahead": 1}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise ValueError(f"{name} must be at least {bound}; got {getattr(self, name)}")

    @property
    def needs_kv_cache(self) -> bool:
        """Whether keys and values outlive their step.

        They do not if each prompt runs whole in one step, nothing reuses a prefix, and the token that is sampled
        is never fed back.
        """
        whole_prompts = self.max_model_len <= self.max_num_batched_tokens
        return self.prefix_caching or self.max_tokens > 1 or not whole_prompts

    @property
    def skips_unwanted_rows(self) -> bool:
        """Whether tokens whose states nobody asked for may leave the last block after their keys and values.

        They may not where a later request with the same prefix could ask for those states.
        """
        return self.only_last or not self.prefix_caching

    @property
    def max_blocks_per_request(self) -> int:
        """Blocks of a request of `max_model_len` tokens."""
        return num_blocks_for(self.max_model_len, self.block_size)


def num_blocks_for(num_tokens: int, block_size: int) -> int:
    """Blocks that hold `num_tokens` tokens."""
    return -(-num_tokens // block_size)
