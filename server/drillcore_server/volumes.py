"""Where the claims of a job are mounted: `pvc://claim/path` and `file:///path` to local paths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from drillcore_server.errors import ShardError
from drillcore_spec.reasons import Reason


@dataclass(frozen=True)
class Volumes:
    """Folders of the persistent volume claims that a job names."""

    root: Path
    """Folder in which each claim that `mounts` does not name is a folder: /volumes in a pod."""
    mounts: Mapping[str, Path] = field(default_factory=dict)
    """Claim name to folder, from `--mount CLAIM=FOLDER`."""

    def claim(self, name: str) -> Path:
        """The folder of one claim."""
        return self.mounts.get(name, self.root / name)

    def resolve(self, uri: str, field_path: str, reason: Reason) -> Path:
        """The local path (it may hold glob characters) that a `file://` or `pvc://` URI names.

        Raises:
            ShardError: with `reason`, naming `field_path`, when the URI is of another kind, or leaves its claim.
        """
        scheme, sep, rest = uri.partition("://")
        if sep and scheme == "file" and rest.startswith("/"):
            return Path(unquote(rest))
        if sep and scheme == "pvc" and rest:
            claim, _, inner = unquote(rest).partition("/")
            if claim and ".." not in Path(inner).parts:
                return self.claim(claim) / inner
        raise ShardError(
            reason, f"`{field_path}` must be file:///ABSOLUTE/PATH or pvc://CLAIM/PATH without `..`; got {uri!r}"
        )
