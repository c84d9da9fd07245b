"""Datasets of a hub that speaks Hugging Face's API: the files of one commit, downloaded once.

    hf://ORG/NAME[@REVISION][/FOLDER or /PATTERN]

The files are read by the same readers as local ones, so that nothing depends on how a version of `datasets`
builds its cache. huggingface_hub itself reads HF_TOKEN, HF_HOME and HF_HUB_OFFLINE.
"""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

import httpx
from huggingface_hub import HfApi, hf_hub_download
from huggingface_hub.errors import (
    GatedRepoError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    XetDownloadError,
)

from drillcore_server.data.files import FoundFile
from drillcore_server.data.formats import FORMAT_OF_SUFFIX, format_of_name
from drillcore_server.data.splits import files_of_split
from drillcore_server.errors import ShardError
from drillcore_spec.reasons import Reason

_URI = re.compile(r"hf://(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[^/@]+))?(/(?P<path>.*))?")
_TIMEOUT_S = 30.0
"""For the one request that lists a commit; downloads have huggingface_hub's own retries."""


def find_hub_files(uri: str, split: str | None, cache_dir: Path | None) -> tuple[list[FoundFile], str]:
    """The files of a hub's dataset in the cache, sorted by name, and their commit.

    Several processes may share a cache: huggingface_hub locks each file.

    Raises:
        ShardError: DATASET_NOT_FOUND when the hub has no such dataset or file; BAD_DATASET when the split or the
            folder is not clear; BAD_SPEC for a URI of another form; MODEL_UNAVAILABLE when the hub does not answer.
    """
    parts = _URI.fullmatch(uri)
    if parts is None:
        raise ShardError(
            Reason.BAD_SPEC,
            f"`spec.dataset.uri` must be hf://ORG/NAME[@REVISION][/PATH] for a hub's dataset; got {uri}",
        )
    repo, endpoint = parts["repo"], os.environ.get("HF_ENDPOINT") or None
    try:
        info = HfApi(endpoint=endpoint).dataset_info(repo, revision=parts["revision"], timeout=_TIMEOUT_S)
        names = choose_files([file.rfilename for file in info.siblings or ()], parts["path"] or "", split, uri)
        files = [
            FoundFile(Path(hf_hub_download(
                repo, name, repo_type="dataset", revision=info.sha, cache_dir=cache_dir, endpoint=endpoint
            )), name)
            for name in names
        ]  # fmt: skip
    except (httpx.HTTPError, XetDownloadError, OSError) as error:
        raise _shard_error(uri, parts["revision"], error) from error
    return files, str(info.sha)


def choose_files(names: list[str], path: str, split: str | None, uri: str) -> list[str]:
    """The dataset files of a repository that a path in it names, sorted.

    Args:
        names: all files of the repository.
        path: empty, a folder, a file, or a pattern with `*` and `?`, which match `/` too.
        split: the split to take; None: the only one.
        uri: for messages.

    Raises:
        ShardError: DATASET_NOT_FOUND for no file; BAD_DATASET for several splits or several folders.
    """
    data = [name for name in names if format_of_name(name) is not None and not name.endswith("dataset_infos.json")]
    folder = path.rstrip("/")
    is_pattern = any(character in folder for character in "*?[")
    found = sorted(n for n in data if fnmatchcase(n, folder) or (not is_pattern and _is_under(n, folder)))
    if not found:
        raise ShardError(
            Reason.DATASET_NOT_FOUND,
            f"`spec.dataset.uri` {uri} names no {', '.join(FORMAT_OF_SUFFIX)} file; the repository has"
            f" {', '.join(names[:10]) or 'no files'}",
        )
    chosen = found if is_pattern and split is None else files_of_split(found, split, uri)
    folders = sorted({str(PurePosixPath(name).parent) for name in chosen})
    if len(folders) > 1 and not is_pattern:
        raise ShardError(
            Reason.BAD_DATASET,
            f"{uri} has dataset files in several folders: {', '.join(folders)}; name one: {uri}/FOLDER",
        )
    return chosen


def _is_under(name: str, folder: str) -> bool:
    return not folder or name.startswith(f"{folder}/")


def _shard_error(uri: str, revision: str | None, error: Exception) -> ShardError:
    """What went wrong, and what to do about it; the most specific class first."""
    match error:
        case GatedRepoError():
            return ShardError(
                Reason.MODEL_UNAVAILABLE,
                f"{uri} is gated: accept its licence on the hub, and give the token of that account in HF_TOKEN"
                " (the Secret in `spec.model.secretName`)",
            )
        case RepositoryNotFoundError():
            return ShardError(
                Reason.DATASET_NOT_FOUND,
                f"the hub has no {uri}, or the token may not see it: check `spec.dataset.uri`, and HF_TOKEN for a"
                " private one",
            )
        case RevisionNotFoundError():
            return ShardError(
                Reason.DATASET_NOT_FOUND,
                f"{uri} has no revision {revision!r}: check it; it must be a commit, branch or tag",
            )
        case _:
            first_line = next(iter(str(error).splitlines()), type(error).__name__)
            return ShardError(
                Reason.MODEL_UNAVAILABLE,
                f"the hub did not give {uri}: {first_line}. Check HF_ENDPOINT, proxies, the network, and the cache's"
                " volume",
            )
