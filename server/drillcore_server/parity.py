"""Compare this engine with transformers on one model: every layer id and the final norm, token by token.

Judged per token row, ||got - expected|| <= tolerance * ||expected||, and never by one maximum over all tokens: the
first token's state is often thousands of times larger than the rest and would hide a wrong layer.

Shapes: S tokens, D hidden.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from drillcore.manifest import FINAL_NORM
from drillcore_server.engine.capture_plan import CapturePlan
from drillcore_server.engine.config import EngineConfig
from drillcore_server.engine.offline import config_for, extract
from drillcore_server.models.loader import load_decoder
from drillcore_server.models.spec import ModelSpec
from drillcore_spec.enums import LayerConvention

TOLERANCE_FLOAT32 = 2e-5
"""Of a float32 forward pass on a CPU."""


@dataclass(frozen=True)
class ColumnParity:
    """How far one column is from transformers."""

    name: str
    """Layer id, or `finalNorm`."""
    worst_error: float
    """Largest ||got - expected|| / ||expected|| of a token."""
    neighbour_error: float
    """The smallest such error of a token against the next id: how far off a wrong layer would be."""

    @property
    def ok(self) -> bool:
        """Whether every token agrees."""
        return self.worst_error <= TOLERANCE_FLOAT32


@dataclass(frozen=True)
class ParityReport:
    """All columns of a model."""

    columns: tuple[ColumnParity, ...]
    num_tokens: int
    num_chunks: int
    """Steps of the engine's second run, in which the prompt was prefilled in chunks."""

    @property
    def ok(self) -> bool:
        """Whether every column agrees."""
        return all(column.ok for column in self.columns)


def compare_with_transformers(folder: Path, text: str) -> ParityReport:
    """Runs `text` through both, in float32 on the CPU; through the engine twice: whole, and in chunks.

    Raises:
        ShardError: the model is not supported, or its weights are broken.
    """
    spec = ModelSpec.from_folder(folder)
    token_ids = AutoTokenizer.from_pretrained(folder, local_files_only=True)(text)["input_ids"]
    plan = CapturePlan.resolve(
        range(spec.num_layers + 1), LayerConvention.RESIDUAL_IN, True, spec.num_layers, spec.hidden_size
    )
    decoder = load_decoder(
        folder,
        spec,
        device="cpu",
        dtype=torch.float32,
        num_layers=spec.num_layers,
        lm_head=False,
        final_norm=True,
        max_positions=len(token_ids),
    )
    chunk = max(1, len(token_ids) // 3)
    configs = (config_for([token_ids]), _chunked(len(token_ids), chunk))
    runs = [extract(decoder, plan, [token_ids], config=config)[0].hidden_states for config in configs]
    del decoder
    expected = reference_states(folder, token_ids)
    names = [*map(str, plan.ids), FINAL_NORM]
    columns = tuple(_column(name, c, runs, expected) for c, name in enumerate(names))
    return ParityReport(columns, len(token_ids), -(-len(token_ids) // chunk))


def reference_states(folder: Path, token_ids: list[int]) -> torch.Tensor:
    """Transformers' r_0..r_L and n_L [S, L + 2, D] in float32, with eager attention.

    Its `hidden_states` are r_0..r_{L-1} and n_L; r_L is what enters the final norm.
    """
    disable_progress_bar()
    model = AutoModel.from_pretrained(
        folder, local_files_only=True, dtype=torch.float32, attn_implementation="eager", trust_remote_code=False
    ).eval()
    before_norm: list[torch.Tensor] = []

    def keep(module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        before_norm.append(inputs[0])

    with torch.inference_mode(), model.norm.register_forward_pre_hook(keep):
        states = model(torch.tensor([token_ids]), output_hidden_states=True, use_cache=False).hidden_states
    return torch.stack([*states[:-1], before_norm[0], states[-1]], dim=2)[0]


def row_errors(got: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """||got - expected|| / ||expected|| [S] of states [S, D], in float64."""
    difference = (got.double() - expected.double()).norm(dim=-1)
    errors: torch.Tensor = difference / expected.double().norm(dim=-1).clamp_min(1e-30)
    return errors


def _chunked(num_tokens: int, chunk: int) -> EngineConfig:
    num_blocks = 2 + num_tokens // EngineConfig.block_size
    return EngineConfig(max_model_len=num_tokens, num_blocks=num_blocks, max_num_batched_tokens=chunk)


def _column(name: str, column: int, runs: list[torch.Tensor], expected: torch.Tensor) -> ColumnParity:
    worst = max(float(row_errors(run[:, column], expected[:, column]).max()) for run in runs)
    other = column + 1 if column + 1 < expected.shape[1] else column - 1
    neighbour = float(row_errors(runs[0][:, column], expected[:, other]).min())
    return ColumnParity(name, worst, neighbour)
