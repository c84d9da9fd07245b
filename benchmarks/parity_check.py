"""Whether a configuration's states are right: without that, its speed is not reported.

A state in a batch must be that of its prompt alone but for the order in which bfloat16 products are summed. Where a
prompt alone has enough rows for the same matrix kernels, nothing differs at all. A short prompt alone gets kernels that
split the sum, and its states differ as those of any implementation do (transformers' own by as much: see
docs/performance.md); then the batch must be as close to float32 as the prompt alone is.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from end_to_end import limits_of, plan_of, requests_of
from transformers_peer import TransformersPeer
from workload_list import Prompts, Workload

from drillcore_server.connector.list_sink import ListSink
from drillcore_server.engine import Engine, EngineConfig, state_shape
from drillcore_server.engine.config import num_blocks_for
from drillcore_server.models.decoder import Decoder
from drillcore_spec.enums import PositionsKind

MIN_LAYER_COSINE = 0.999
"""Of each layer's states as one vector, against transformers in float32."""
MIN_ROW_COSINE = 0.9999
"""Of each state, against the same engine with the prompt alone."""
MAX_ERROR_RATIO = 1.15
"""Of each state's distance to float32, against that of the prompt alone. Another row's state gives more than 10."""
_NUM_PROMPTS = 4
_MAX_TOKENS = 320
"""Of a prompt, unless its shared prefix is what must be judged."""


@dataclass(frozen=True)
class Parity:
    """How close the states of some prompts are."""

    layer_cosine: float
    """The worst layer's, against transformers in float32."""
    row_cosine: float
    """The worst state's, against the same engine with each prompt alone."""
    error_ratio: float
    """The worst state's distance to transformers in float32, as a multiple of that of the prompt alone."""

    @property
    def ok(self) -> bool:
        """Whether they are close enough; NaN is not."""
        only_rounded = self.row_cosine >= MIN_ROW_COSINE or self.error_ratio <= MAX_ERROR_RATIO
        return self.layer_cosine >= MIN_LAYER_COSINE and only_rounded


def check_parity(workload: Workload, decoder: Decoder, peer: TransformersPeer, prompts: Prompts) -> Parity:
    """Compares the first prompts of the workload, run together, with each alone and with `peer` in float32."""
    longest = len(prompts[0]) if workload.prefix_caching else _MAX_TOKENS
    some = [ids[:longest] for ids in prompts[:_NUM_PROMPTS]]
    together = _states(workload, decoder, some)
    alone = [_states(workload, decoder, [ids])[0] for ids in some]
    rows = [F.cosine_similarity(a, b, dim=-1).min() for a, b in zip(together, alone, strict=True)]
    last = workload.positions is PositionsKind.LAST
    expected = [peer.states(ids, workload.layers)[-1 if last else 0 :] for ids in some]
    layers = F.cosine_similarity(_by_layer(together), _by_layer(expected), dim=-1)
    ratios = [_distance(a, e) / _distance(b, e) for a, b, e in zip(together, alone, expected, strict=True)]
    return Parity(layers.min().item(), torch.stack(rows).min().item(), torch.cat(ratios).max().item())


def _states(workload: Workload, decoder: Decoder, prompts: Prompts) -> list[torch.Tensor]:
    """States float64 [P, C, D] of each prompt."""
    num_blocks = 1 + sum(num_blocks_for(len(ids), EngineConfig.block_size) for ids in prompts)
    config = limits_of(workload, num_blocks)
    sink = ListSink(state_shape(decoder, plan_of(workload, decoder)))
    Engine(decoder, plan_of(workload, decoder), config, sink).run(requests_of(workload, prompts))
    samples = sink.by_row()
    return [samples[row].hidden_states.double() for row in range(len(prompts))]


def _distance(states: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Of each row [P] over all of its layers, each as a share of the state's length; never quite 0."""
    expected = expected.double()
    relative = (states - expected).norm(dim=-1) / expected.norm(dim=-1)
    return relative.norm(dim=-1).clamp_min(1e-9)


def _by_layer(samples: list[torch.Tensor]) -> torch.Tensor:
    """[C, rows * D] of samples [P, C, D]."""
    return torch.cat([sample.double() for sample in samples]).transpose(0, 1).flatten(1)
