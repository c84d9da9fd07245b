"""Everything that is known before weights are loaded: model, layers, rows, and the identity of the output."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version

import torch

from drillcore.manifest import Manifest, ModelIdentity
from drillcore.token_ranges import TokenStride, TokenWindow
from drillcore_server.data.dataset import Dataset, open_dataset
from drillcore_server.data.identity import dataset_identity
from drillcore_server.data.packing import CONTEXT_ROWS_PER_SHARD
from drillcore_server.data.preparer import RowPreparer
from drillcore_server.data.template_file import load_chat_template
from drillcore_server.engine.capture_plan import CapturePlan
from drillcore_server.engine.device import stored_name
from drillcore_server.errors import ShardError
from drillcore_server.models.fingerprint import config_sha256, tokenizer_sha256, weights_fingerprint
from drillcore_server.models.sources import ModelFolder, resolve_model
from drillcore_server.models.spec import ModelSpec
from drillcore_server.models.stop_tokens import stop_token_ids
from drillcore_server.volumes import Volumes
from drillcore_spec import ExtractionJobSpec
from drillcore_spec.reasons import Reason


@dataclass(frozen=True)
class Preparation:
    """A job resolved against its model and its dataset."""

    spec: ExtractionJobSpec
    folder: ModelFolder
    model: ModelSpec
    plan: CapturePlan
    max_model_len: int
    """Tokens of the longest row."""
    dataset: Dataset
    preparer: RowPreparer
    chat_template: str | None
    """Jinja text in place of the model's own."""
    stop_token_ids: frozenset[int]
    """A sampled id of these ends a row's generation."""

    @property
    def generates(self) -> bool:
        """Whether tokens are sampled."""
        return self.spec.generation.max_tokens > 0

    def shard_rows(self, shard: int) -> range:
        """The dataset's rows of one shard."""
        return self.dataset.shard_rows(shard, self.spec.shards.count)

    def rows_in(self, shard: int) -> int | None:
        """Rows that the shard's commit accounts for; None for contexts, whose number shows when all are packed."""
        return None if self.spec.dataset.context_size else len(self.shard_rows(shard))

    def first_row(self, shard: int) -> int:
        """The shard's lowest row in the output."""
        if self.spec.dataset.context_size:
            return shard * CONTEXT_ROWS_PER_SHARD
        return self.shard_rows(shard).start


def prepare(spec: ExtractionJobSpec, volumes: Volumes) -> Preparation:
    """Finds the model and the dataset and checks the job against both.

    Raises:
        ShardError: with the reason of whatever does not fit.
    """
    cache_dir = volumes.claim(spec.model.cache_claim_name) if spec.model.cache_claim_name else None
    folder = resolve_model(spec.model, volumes, cache_dir=cache_dir)
    model = ModelSpec.from_folder(folder.path)
    extraction = spec.extraction
    plan = CapturePlan.resolve(
        extraction.layers, extraction.layer_convention, extraction.final_norm, model.num_layers, model.hidden_size
    )
    max_model_len = _max_model_len(spec, model)
    dataset = open_dataset(spec.dataset, volumes, cache_dir)
    chat_template = load_chat_template(spec.dataset, volumes)
    preparer = RowPreparer(
        folder.path,
        spec.dataset,
        max_model_len=max_model_len - max(spec.generation.max_tokens - 1, 0),
        positions=extraction.positions,
        chat_template=chat_template,
        is_generating=spec.generation.max_tokens > 0,
    )
    return Preparation(
        spec=spec,
        folder=folder,
        model=model,
        plan=plan,
        max_model_len=max_model_len,
        dataset=dataset,
        preparer=preparer,
        chat_template=chat_template,
        stop_token_ids=stop_token_ids(folder.path),
    )


def manifest_of(preparation: Preparation, dtype: torch.dtype, stored: torch.dtype) -> Manifest:
    """The identity of the output.

    Args:
        preparation: the job.
        dtype: of the forward pass.
        stored: of the stored states.
    """
    p, spec, extraction = preparation, preparation.spec, preparation.spec.extraction
    return Manifest(
        engine_version=version("drillcore"),
        model=ModelIdentity(
            uri=p.folder.uri,
            revision=p.folder.revision,
            config_sha256=config_sha256(p.folder.path),
            tokenizer_sha256=tokenizer_sha256(p.folder.path),
            weights_fingerprint=weights_fingerprint(p.folder.path),
        ),
        dataset=dataset_identity(p.dataset, spec.dataset, p.chat_template),
        layers=p.plan.ids,
        final_norm=p.plan.final_norm,
        hidden_size=p.model.hidden_size,
        positions=extraction.positions.value,
        window=TokenWindow(extraction.window.start, extraction.window.end) if extraction.window else None,
        stride=TokenStride(extraction.stride.step, extraction.stride.offset) if extraction.stride else None,
        dtype=stored_name(dtype),
        store_dtype=stored_name(stored),
        generation=spec.generation.model_dump(by_alias=True, mode="json") if p.generates else None,
        max_model_len=p.max_model_len,
        shard_count=spec.shards.count,
        special_token_ids=p.preparer.tokenizer.special_token_ids,
        layout=spec.output.layout.value,
    )


def _max_model_len(spec: ExtractionJobSpec, model: ModelSpec) -> int:
    asked = spec.engine.max_model_len
    if asked is not None and asked > model.max_position_embeddings:
        raise ShardError(
            Reason.BAD_SPEC,
            f"`spec.engine.maxModelLen` must be at most {model.max_position_embeddings}, the positions that the model "
            f"has; got {asked}",
        )
    max_model_len = asked or model.max_position_embeddings
    if spec.generation.max_tokens >= max_model_len:
        raise ShardError(
            Reason.BAD_SPEC,
            f"`spec.generation.maxTokens` must be less than the longest row, {max_model_len} tokens; "
            f"got {spec.generation.max_tokens}",
        )
    return max_model_len
