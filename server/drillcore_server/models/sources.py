"""Where a job's model comes from: a folder, a claim, or a model hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from drillcore_server.errors import ShardError
from drillcore_server.models.hub import download
from drillcore_server.volumes import Volumes
from drillcore_spec.model_source import ModelSource
from drillcore_spec.reasons import Reason
from drillcore_spec.uris import HUB_SCHEME, is_hub


@dataclass(frozen=True)
class ModelFolder:
    """A model on a local disk or a mounted volume."""

    path: Path
    uri: str
    """As the job names it."""
    revision: str | None
    """The commit of a hub model; None for folders, which have no history."""


def resolve_model(model: ModelSource, volumes: Volumes, *, cache_dir: Path | None, weights: bool = True) -> ModelFolder:
    """The folder of a job's model; what a hub has is downloaded first.

    Args:
        model: `spec.model` of the job.
        volumes: where claims are mounted.
        cache_dir: folder of downloaded models; None: huggingface_hub's own (HF_HOME).
        weights: also download the weights. Without, config and tokenizer are there, for estimates.

    Raises:
        ShardError: MODEL_UNAVAILABLE when the folder is missing or the hub does not give the model; BAD_SPEC for a URI
            that names no model; from a hub also MODEL_BROKEN and MODEL_UNSUPPORTED, by the model's config.
    """
    if is_hub(model.uri):
        repo_id = model.uri.removeprefix(HUB_SCHEME)
        path, commit = download(repo_id, model.revision, cache_dir=cache_dir, weights=weights)
        return ModelFolder(path, model.uri, commit)
    path = volumes.resolve(model.uri, "spec.model.uri", Reason.BAD_SPEC)
    if not path.is_dir():
        got = "a file" if path.exists() else "nothing there"
        raise ShardError(
            Reason.MODEL_UNAVAILABLE,
            f"`spec.model.uri` {model.uri} must name a model folder: {path} should be one; got {got}. "
            "Check the path, and that its volume is mounted",
        )
    return ModelFolder(path, model.uri, None)
