"""Models of a hub that speaks Hugging Face's API: the commit of a revision, and only the files that are needed.

HF_ENDPOINT names another hub than huggingface.co; huggingface_hub itself reads HF_TOKEN, HF_HOME and
HF_HUB_OFFLINE.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import httpx
from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    XetDownloadError,
)

from drillcore_server.errors import ShardError
from drillcore_server.models.checkpoint import INDEX_FILE, SINGLE_FILE, weight_files
from drillcore_server.models.fingerprint import TOKENIZER_FILES
from drillcore_server.models.spec import ModelSpec
from drillcore_spec.reasons import Reason

_REPO_ID = re.compile(r"([\w.-]+/)?[\w.-]+")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SMALL_FILES = ("config.json", "generation_config.json", INDEX_FILE, *TOKENIZER_FILES)
_TIMEOUT_S = 30.0
"""For the one request that resolves a revision; downloads have huggingface_hub's own retries."""


def download(repo_id: str, revision: str | None, *, cache_dir: Path | None, weights: bool) -> tuple[Path, str]:
    """The folder of a hub model in the cache, and its commit.

    Config, tokenizer and index come first, so that a model that cannot run is refused before its weights are
    downloaded; then exactly the weights files that the index names. A commit whose files are all in the cache
    needs no network. Several processes may share a cache: huggingface_hub locks each file.

    Raises:
        ShardError: MODEL_UNAVAILABLE, saying what to do; BAD_SPEC for an id that no hub can have; MODEL_BROKEN and
            MODEL_UNSUPPORTED by the model's config and index.
    """
    if not _REPO_ID.fullmatch(repo_id):
        raise ShardError(Reason.BAD_SPEC, f"`spec.model.uri` must be hf://ORG/NAME for a hub model; got hf://{repo_id}")
    try:
        commit = _commit_of(repo_id, revision)
        folder = _snapshot(repo_id, commit, _SMALL_FILES, cache_dir)
        ModelSpec.from_folder(folder)
        names = weight_files(folder)
        if weights:
            _snapshot(repo_id, commit, names, cache_dir)
    except (httpx.HTTPError, XetDownloadError, OSError) as error:
        raise ShardError(Reason.MODEL_UNAVAILABLE, _explain(repo_id, revision, error)) from error
    if weights and not any((folder / name).exists() for name in names):
        raise ShardError(
            Reason.MODEL_UNSUPPORTED,
            f"hf://{repo_id} at {commit} must have {SINGLE_FILE} or {INDEX_FILE}; it has neither",
        )
    return folder, commit


def _commit_of(repo_id: str, revision: str | None) -> str:
    if revision is not None and _COMMIT.fullmatch(revision):
        return revision
    commit: str | None = HfApi(endpoint=_endpoint()).model_info(repo_id, revision=revision, timeout=_TIMEOUT_S).sha
    if commit is None:
        raise ShardError(Reason.MODEL_UNAVAILABLE, f"the hub must give a commit for hf://{repo_id}; it gave none")
    return commit


def _endpoint() -> str | None:
    return os.environ.get("HF_ENDPOINT") or None


def _snapshot(repo_id: str, commit: str, names: tuple[str, ...], cache_dir: Path | None) -> Path:
    path = snapshot_download(
        repo_id, revision=commit, allow_patterns=list(names), cache_dir=cache_dir, endpoint=_endpoint()
    )
    return Path(path)


def _explain(repo_id: str, revision: str | None, error: Exception) -> str:
    """What went wrong, and what to do about it; the most specific class first."""
    model = f"hf://{repo_id}"
    match error:
        case GatedRepoError():
            return (
                f"{model} is gated: accept its licence on the hub, and give the token of that account in HF_TOKEN "
                "(the Secret in `spec.model.secretName`)"
            )
        case RepositoryNotFoundError():
            return (
                f"the hub has no {model}, or the token may not see it. Check `spec.model.uri`, and for a private model "
                "HF_TOKEN (the Secret in `spec.model.secretName`)"
            )
        case RevisionNotFoundError():
            return f"{model} has no revision {revision!r}. Check `spec.model.revision`: a commit, branch or tag"
        case OfflineModeIsEnabled() | LocalEntryNotFoundError() | httpx.TransportError():
            return (
                f"the hub cannot be reached for {model}, and the cache does not have all of it: {_first_line(error)}. "
                "Check HF_ENDPOINT, proxies and the network; a `spec.model.revision` that is a commit can be served "
                "from a filled cache (`spec.model.cacheClaimName`)"
            )
        case HfHubHTTPError() | httpx.HTTPError() | XetDownloadError():
            return f"the hub did not give {model}: {_first_line(error)}. Try again later"
        case _:
            return f"{model} cannot be stored in the cache: {error}. Check its volume's free space and permissions"


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__} {next(iter(str(error).splitlines()), '')}".strip()
