"""From settings to a model that is ready to serve; what can be refused is refused before weights are read."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from drillcore.sample_schema import SampleFileSchema
from drillcore_server.api.extraction import Model
from drillcore_server.api.settings import ServeSettings
from drillcore_server.data.tokenizer import Tokenizer
from drillcore_server.engine.capture_plan import CapturePlan
from drillcore_server.engine.config import EngineConfig
from drillcore_server.engine.device import choose_device, compute_dtype, store_dtype, stored_name
from drillcore_server.engine.sizing import step_tokens, with_blocks
from drillcore_server.errors import ShardError
from drillcore_server.models.decoder import Decoder
from drillcore_server.models.loader import load_decoder
from drillcore_server.models.sources import resolve_model
from drillcore_server.models.spec import ModelSpec
from drillcore_server.models.stop_tokens import stop_token_ids
from drillcore_server.volumes import Volumes
from drillcore_spec.model_source import ModelSource
from drillcore_spec.reasons import Reason

FORMAT = "drillcore-sample"
"""`format` in the metadata of each file."""


@dataclass(frozen=True)
class LoadedModel:
    """What an engine is made of, and what requests must know of it."""

    model: Model
    decoder: Decoder
    plan: CapturePlan
    config: EngineConfig
    store_dtype: torch.dtype


def load_model(settings: ServeSettings, volumes: Volumes) -> LoadedModel:
    """Finds, checks and loads the model.

    Raises:
        ShardError: with the reason of whatever does not fit.
    """
    source = ModelSource(uri=settings.model_uri, revision=settings.revision)
    folder = resolve_model(source, volumes, cache_dir=None)
    spec = ModelSpec.from_folder(folder.path)
    plan = CapturePlan.resolve(
        settings.layers, settings.layer_convention, settings.final_norm, spec.num_layers, spec.hidden_size
    )
    max_model_len = _max_model_len(settings, spec)
    tokenizer = Tokenizer(folder.path)
    device = choose_device(0, local=True)
    stored = store_dtype(settings.store_dtype, spec.dtype)
    decoder = load_decoder(
        folder.path,
        spec,
        device=device,
        dtype=compute_dtype(settings.dtype, spec.dtype, device),
        num_layers=plan.num_layers_to_run(generates=settings.generates),
        lm_head=settings.generates,
        final_norm=plan.final_norm or settings.generates,
        max_positions=max_model_len,
    )
    config = with_blocks(_limits(settings, max_model_len, decoder), plan, decoder, stored)
    model = Model(
        id=settings.model_id,
        tokenizer=tokenizer,
        layer_ids=plan.ids,
        final_norm=plan.final_norm,
        stop_token_ids=stop_token_ids(folder.path),
        vocab_size=spec.vocab_size,
        max_tokens=min(config.max_model_len, (config.num_blocks - 1) * config.block_size),
        generates=settings.generates,
        schema=file_schema(plan, stored),
    )
    return LoadedModel(model, decoder, plan, config, stored)


def file_schema(plan: CapturePlan, stored: torch.dtype) -> SampleFileSchema:
    """What the files hold."""
    metadata = {
        "format": FORMAT,
        "layers": ",".join(map(str, plan.ids)),
        "finalNorm": str(plan.final_norm).lower(),
    }
    return SampleFileSchema(stored_name(stored), plan.num_columns, plan.hidden_size, metadata)


def _limits(settings: ServeSettings, max_model_len: int, decoder: Decoder) -> EngineConfig:
    return EngineConfig(
        max_model_len=max_model_len,
        num_blocks=2,
        max_num_batched_tokens=step_tokens(settings.max_num_batched_tokens, decoder),
        max_num_seqs=settings.max_num_seqs,
        max_tokens=max_model_len if settings.generates else 0,
        prefix_caching=settings.prefix_caching,
    )


def _max_model_len(settings: ServeSettings, spec: ModelSpec) -> int:
    asked, positions = settings.max_model_len, spec.max_position_embeddings
    if asked is not None and not 1 <= asked <= positions:
        raise ShardError(
            Reason.BAD_SPEC,
            f"`--max-model-len` must be 1 to {positions}, the positions that the model has; got {asked}",
        )
    return asked or positions
