"""Weights from a model folder into a decoder: only what the job needs, straight to the device."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from drillcore_kernels import select_ops
from drillcore_server.errors import ShardError
from drillcore_server.models.checkpoint import Checkpoint, StoredTensor
from drillcore_server.models.decoder import Decoder
from drillcore_server.models.reader import DTYPES, read_tensor
from drillcore_server.models.spec import ModelSpec
from drillcore_server.models.weights import (
    DecoderWeights,
    Parameter,
    Piece,
    build_weights,
    checkpoint_keys,
)
from drillcore_spec.reasons import Reason

logger = logging.getLogger(__name__)

_READ_THREADS = 8
"""Reads in flight: one thread gets a fraction of what a page cache or a network volume can give."""
_LM_HEAD = "lm_head.weight"
_DERIVED_BUFFERS = re.compile(r"rotary_emb\.(inv_freq|cos_cached|sin_cached)$")
"""Old checkpoints store these; they follow from the config."""
_BLOCK_KEY = re.compile(r"model\.layers\.(\d+)\.")


@dataclass(frozen=True)
class LoadReport:
    """What became of every tensor of a checkpoint. The three lists are disjoint and complete."""

    consumed: tuple[str, ...]
    not_needed: tuple[str, ...]
    """Tensors of this model that the job does not need: blocks above the last layer, final norm, lm_head."""
    ignored: tuple[str, ...]
    """Tensors that the model type does not have, outside the blocks that were loaded."""
    bytes_read: int


def load_decoder(
    folder: Path,
    spec: ModelSpec,
    *,
    device: torch.device | str,
    dtype: torch.dtype,
    num_layers: int,
    lm_head: bool,
    final_norm: bool,
    max_positions: int | None = None,
) -> Decoder:
    """The first `num_layers` blocks of a model, ready to run.

    Args:
        folder: the model folder.
        spec: of its config.json.
        device: where the weights go and the decoder runs.
        dtype: of weights and activations.
        num_layers: blocks to load: the highest layer id that is needed.
        lm_head: load what `logits` needs.
        final_norm: load what n_L needs.
        max_positions: length of the rope tables; None: the model's `max_position_embeddings`.

    Raises:
        ShardError: MODEL_BROKEN, naming file and tensor, when weights are missing, cut off or do not fit the
            config; MODEL_UNSUPPORTED when they are quantised; MODEL_UNAVAILABLE when they cannot be read.
    """
    weights, report = load_weights(
        folder,
        spec,
        device=torch.device(device),
        dtype=dtype,
        num_layers=num_layers,
        lm_head=lm_head,
        final_norm=final_norm,
    )
    logger.info(
        "read %d tensors, %.2f GB from %s; %d not needed",
        len(report.consumed),
        report.bytes_read / 1e9,
        folder,
        len(report.not_needed),
    )
    if report.ignored:
        logger.warning("ignored %d tensors, the first is %s", len(report.ignored), report.ignored[0])
    cos, sin = spec.rope.tables(max_positions or spec.max_position_embeddings, device)
    return Decoder(spec, weights, select_ops(device, dtype), cos, sin)


def load_weights(
    folder: Path,
    spec: ModelSpec,
    *,
    device: torch.device,
    dtype: torch.dtype,
    num_layers: int,
    lm_head: bool,
    final_norm: bool,
) -> tuple[DecoderWeights, LoadReport]:
    """The weights alone, and what became of every tensor of the checkpoint; see `load_decoder`."""
    stored = _canonical(Checkpoint.open(folder).tensors)
    if _LM_HEAD in stored:
        # Stored apart means not tied, whatever the config says; transformers decides so too.
        spec = replace(spec, tied_embeddings=False)
    needed = checkpoint_keys(spec, num_layers=num_layers, final_norm=final_norm, lm_head=lm_head)
    whole = checkpoint_keys(spec, num_layers=spec.num_layers, final_norm=True, lm_head=True)
    ignored = stored.keys() - whole
    _refuse_unexpected(ignored, stored, num_layers)
    with _Reader(folder, stored, device, dtype) as reader:
        weights = build_weights(spec, reader.make, num_layers=num_layers, final_norm=final_norm, lm_head=lm_head)
        reader.finish()
    report = LoadReport(
        consumed=tuple(sorted(needed)),
        not_needed=tuple(sorted((stored.keys() & whole) - needed)),
        ignored=tuple(sorted(ignored)),
        bytes_read=sum(stored[key].num_bytes for key in needed),
    )
    return weights, report


class _Reader:
    """Makes parameters whose values are still being read; they are whole after `finish`."""

    def __init__(
        self, folder: Path, stored: Mapping[str, StoredTensor], device: torch.device, dtype: torch.dtype
    ) -> None:
        self._folder = folder
        self._stored = stored
        self._device = device
        self._dtype = dtype
        self._pool = ThreadPoolExecutor(_READ_THREADS, thread_name_prefix="weights")
        self._reads: list[Future[None]] = []

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def make(self, parameter: Parameter) -> torch.Tensor:
        target = torch.empty(parameter.shape, dtype=self._dtype, device=self._device)
        for piece in parameter.pieces:
            rows = target[piece.first_row : piece.first_row + piece.num_rows]
            stored = self._checked(piece, tuple(rows.shape))
            self._reads.append(self._pool.submit(read_tensor, stored, rows))
        return target

    def finish(self) -> None:
        for read in self._reads:
            read.result()

    def _checked(self, piece: Piece, shape: tuple[int, ...]) -> StoredTensor:
        stored = self._stored.get(piece.key)
        if stored is None:
            raise ShardError(
                Reason.MODEL_BROKEN,
                f"{self._folder} must hold a tensor `{piece.key}` {list(shape)}; no file has it. Copy the model again",
            )
        if stored.shape != shape:
            raise ShardError(
                Reason.MODEL_BROKEN,
                f"{stored.path}: `{piece.key}` must have shape {list(shape)} by config.json; got {list(stored.shape)}",
            )
        if stored.dtype not in DTYPES:
            raise ShardError(
                Reason.MODEL_UNSUPPORTED,
                f"{stored.path}: `{piece.key}` must be stored as one of {', '.join(DTYPES)}; got {stored.dtype}",
            )
        return stored


def _canonical(tensors: Mapping[str, StoredTensor]) -> Mapping[str, StoredTensor]:
    """Keys as a causal language model has them: a checkpoint of the bare decoder lacks the prefix."""
    if "model.embed_tokens.weight" in tensors or "embed_tokens.weight" not in tensors:
        return tensors
    return {f"model.{key}": stored for key, stored in tensors.items()}


def _refuse_unexpected(ignored: Iterable[str], stored: Mapping[str, StoredTensor], num_layers: int) -> None:
    """A tensor in a block that runs, but that the block does not use, would silently change the states."""
    for key in sorted(ignored):
        block = _BLOCK_KEY.match(key)
        if block and int(block[1]) < num_layers and not _DERIVED_BUFFERS.search(key):
            raise ShardError(
                Reason.MODEL_BROKEN,
                f"{stored[key].path}: `{key}` is not a tensor of this model by config.json (a bias that the config "
                "denies, scales of quantised weights, an adapter?). Copy the model again, or merge it first",
            )
