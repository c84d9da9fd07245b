"""The peer: what a careful user of transformers would write for the same job, and the judge of parity.

AutoModel without lm_head, bfloat16, sdpa attention, prompts sorted by length into padded batches of nearly equal
token counts, only the wanted layers kept (by hooks, so that 33 states are not held), copied without waiting into
pinned memory. Nothing is written to files. It has the workload's own weights.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from forward_only import Forward
from random_model import RandomModel
from transformers import AutoConfig, AutoModel
from workload_list import Prompts, Workload


class TransformersPeer:
    """A transformers model with the weights of a `RandomModel`, on its device."""

    def __init__(self, model: RandomModel, dtype: torch.dtype) -> None:
        fields = {key: value for key, value in model.config.items() if key != "model_type"}
        config = AutoConfig.for_model(model.config["model_type"], **fields)
        self._device = model.decoder.weights.embedding.device
        with torch.device(self._device):
            self._model = AutoModel.from_config(config, dtype=dtype, attn_implementation="sdpa").eval()
        tensors = {key.removeprefix("model."): t for key, t in model.tensors.items() if key.startswith("model.")}
        self._model.load_state_dict(tensors, strict=True)

    def to(self, dtype: torch.dtype) -> None:
        """Casts the weights; rotary frequencies stay float32, as transformers keeps them."""
        for parameter in self._model.parameters():
            parameter.data = parameter.data.to(dtype)

    @torch.inference_mode()
    def states(self, prompt: Any, layers: Sequence[int]) -> torch.Tensor:
        """r_i of one prompt, float32 [S, C, D] in host memory."""
        with self._captured(layers) as captured:
            self._model(torch.as_tensor(prompt, device=self._device)[None], use_cache=False)
        return torch.stack([captured[layer][0].float().cpu() for layer in layers], dim=1)

    @torch.inference_mode()
    def run(self, workload: Workload, prompts: Prompts, batch_tokens: int) -> Forward:
        """Runs the prompts in padded batches of about `batch_tokens`, and keeps the layers' states."""
        batches = _batches(prompts, batch_tokens)
        self._forward(workload, batches[0])
        began = time.perf_counter()
        kept = [self._forward(workload, batch) for batch in batches]
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        del kept
        return Forward(seconds, sum(map(len, prompts)), len(prompts), len(batches))

    def _forward(self, workload: Workload, batch: Prompts) -> torch.Tensor:
        """The batch's states [C, B, S, D] on their way to pinned memory."""
        ids = torch.zeros(len(batch), max(map(len, batch)), dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(batch):
            ids[row, : len(prompt)] = torch.from_numpy(prompt)
            mask[row, : len(prompt)] = 1
        with self._captured(workload.layers) as captured:
            self._model(ids.to(self._device), attention_mask=mask.to(self._device), use_cache=False)
        shape = (len(workload.layers), *captured[workload.layers[0]].shape)
        on_gpu = self._device.type == "cuda"
        host = torch.empty(shape, dtype=captured[workload.layers[0]].dtype, pin_memory=on_gpu)
        for column, layer in enumerate(workload.layers):
            host[column].copy_(captured[layer], non_blocking=True)
        return host

    @contextlib.contextmanager
    def _captured(self, layers: Sequence[int]) -> Iterator[dict[int, torch.Tensor]]:
        """Inside the block a forward pass leaves r_i in the dictionary."""
        captured: dict[int, torch.Tensor] = {}

        def keep(layer: int) -> Any:
            return lambda _, inputs: captured.__setitem__(layer, inputs[0])

        modules = [*self._model.layers, self._model.norm]
        hooks = [modules[layer].register_forward_pre_hook(keep(layer)) for layer in layers]
        try:
            yield captured
        finally:
            for hook in hooks:
                hook.remove()


def _batches(prompts: Prompts, batch_tokens: int) -> list[Prompts]:
    """Prompts by length, the longest first, as many a batch as fit with their padding."""
    batches: list[Prompts] = []
    for prompt in sorted(prompts, key=len, reverse=True):
        if not batches or (len(batches[-1]) + 1) * len(batches[-1][0]) > batch_tokens:
            batches.append([])
        batches[-1].append(prompt)
    return batches
