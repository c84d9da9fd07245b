"""Every file name of an output. Nothing else builds or parses one.

    <root>/manifest.json
    <root>/complete.json
    <root>/shards/00003/part-00000-5f2c9a10.safetensors
    <root>/shards/00003/journal-5f2c9a10.jsonl
    <root>/shards/00003/quarantine-5f2c9a10.jsonl
    <root>/shards/00003/index-5f2c9a10.safetensors
    <root>/shards/00003/commit.json
    <root>/samples/hs_41.safetensors                     layout PerSample: the states of row 41

The eight hexadecimal digits are the attempt id: two attempts never share a file but commit.json, which
is published whole, and the samples' files, of which the first one stays. A file under construction has the suffix
`.tmp`, so that no pattern for finished files matches it.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from drillcore.errors import ReadError

FORMAT_VERSION = 1
"""Version of everything that stands on disk; a reader refuses any other."""

_TEMPORARY_SUFFIX = ".tmp"
_SHARD = re.compile(r"\d{5,9}", re.ASCII)
_PART = re.compile(r"part-\d{5,9}-([0-9a-f]{8})\.safetensors")
_INDEX = re.compile(r"index-([0-9a-f]{8})\.safetensors")
_QUARANTINE = re.compile(r"quarantine-([0-9a-f]{8})\.jsonl")
_JOURNAL = re.compile(r"journal-([0-9a-f]{8})\.jsonl")
_SAMPLE = re.compile(r"hs_(0|[1-9]\d{0,18})\.safetensors", re.ASCII)
_OF_ATTEMPT = re.compile(
    r"(?:(?:part-\d{5,9}|index|quarantine|journal)-([0-9a-f]{8})\.(?:safetensors|jsonl)(?:(?:\.[0-9a-f]{8})?\.tmp)?"
    r"|sample-\d{5,9}-\d+-([0-9a-f]{8})\.safetensors\.tmp"
    r"|commit\.json\.([0-9a-f]{8})\.tmp)"
)


def new_attempt_id() -> str:
    """Eight random hexadecimal digits: the name of one process's attempt at a shard."""
    return secrets.token_hex(4)


def temporary(path: Path, attempt: str | None = None) -> Path:
    """Where a file is built before it is renamed to `path`.

    Args:
        path: the final name.
        attempt: who builds it, where `path` itself does not say.
    """
    suffix = _TEMPORARY_SUFFIX if attempt is None else f".{attempt}{_TEMPORARY_SUFFIX}"
    return path.with_name(path.name + suffix)


def is_temporary(name: str) -> bool:
    """Whether a file of this name is under construction."""
    return name.endswith(_TEMPORARY_SUFFIX)


def attempt_of(name: str) -> str | None:
    """The attempt that a file of a shard's folder belongs to; None for commit.json and for foreign files."""
    match = _OF_ATTEMPT.fullmatch(name)
    return match and (match[1] or match[2] or match[3])


def is_part(name: str) -> bool:
    """Whether a file name is a part's."""
    return _PART.fullmatch(name) is not None


def is_index(name: str) -> bool:
    """Whether a file name is an index's."""
    return _INDEX.fullmatch(name) is not None


def is_quarantine(name: str) -> bool:
    """Whether a file name is a quarantine file's."""
    return _QUARANTINE.fullmatch(name) is not None


def is_journal(name: str) -> bool:
    """Whether a file name is a journal's."""
    return _JOURNAL.fullmatch(name) is not None


def sample_name(row: int) -> str:
    """The name of a row's file with layout PerSample: the one that speculators' trainer looks for."""
    return f"hs_{row}.safetensors"


def row_of_sample(name: str) -> int | None:
    """The row whose file has this name; None for files that are no sample's."""
    match = _SAMPLE.fullmatch(name)
    return None if match is None else int(match[1])


@dataclass(frozen=True)
class ShardLayout:
    """The files of one shard."""

    directory: Path
    index: int
    """Of the shard, from 0."""
    samples: Path
    """The folder of all shards' sample files, with layout PerSample."""

    def part(self, number: int, attempt: str) -> Path:
        """Part `number` of an attempt."""
        return self.directory / f"part-{number:05d}-{attempt}.safetensors"

    def sample(self, row: int) -> Path:
        """The states of one row, with layout PerSample."""
        return self.samples / sample_name(row)

    def unpublished_sample(self, part: int, number: int, attempt: str) -> Path:
        """Where an attempt builds the file of sample `number` of one of its parts."""
        return temporary(self.directory / f"sample-{part:05d}-{number}-{attempt}.safetensors")

    def journal(self, attempt: str) -> Path:
        """The parts that an attempt committed, one a line."""
        return self.directory / f"journal-{attempt}.jsonl"

    def quarantine(self, attempt: str) -> Path:
        """The rows that cannot be extracted, one a line."""
        return self.directory / f"quarantine-{attempt}.jsonl"

    def sample_index(self, attempt: str) -> Path:
        """Where each sample lies in the parts."""
        return self.directory / f"index-{attempt}.safetensors"

    @property
    def commit(self) -> Path:
        """The marker: the shard is done, and these files count."""
        return self.directory / "commit.json"

    def files(self, kind: Callable[[str], bool]) -> list[Path]:
        """The shard's files whose name is of a kind (`is_part`, `is_journal`, ...), in name order.

        A shard that no attempt began has none.

        Raises:
            ReadError: when the folder cannot be read.
        """
        try:
            return [self.directory / name for name in sorted(os.listdir(self.directory)) if kind(name)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ReadError(self.directory, error) from error

    def named(self, name: str) -> Path:
        """A file of this shard by the name that a commit or a journal gives it."""
        return self.directory / name


@dataclass(frozen=True)
class Layout:
    """The files of one output."""

    root: Path

    @property
    def manifest(self) -> Path:
        """The identity."""
        return self.root / "manifest.json"

    @property
    def complete(self) -> Path:
        """The marker: every shard is committed."""
        return self.root / "complete.json"

    @property
    def shards(self) -> Path:
        """The folder of the shards' folders."""
        return self.root / "shards"

    @property
    def samples(self) -> Path:
        """The folder of the sample files, with layout PerSample."""
        return self.root / "samples"

    def existing_shards(self, count: int) -> list[ShardLayout]:
        """The shards below `count` that have a folder, ascending.

        Raises:
            ReadError: when the folder of shards cannot be read.
        """
        try:
            names = os.listdir(self.shards)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ReadError(self.shards, error) from error
        numbers = sorted(int(name) for name in names if _SHARD.fullmatch(name))
        shards = [self.shard(number) for number in numbers if number < count]
        return [shard for shard in shards if shard.directory.name in names]

    def shard(self, index: int) -> ShardLayout:
        """Shard `index`, from 0."""
        return ShardLayout(self.shards / f"{index:05d}", index, self.samples)
