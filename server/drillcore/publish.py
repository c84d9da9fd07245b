"""manifest.json, commit.json and complete.json: published whole, and once.

Two writers on one folder may run at any time (a zombie on a cut-off node, a user who starts a job twice):
whoever links a name first wins, and the other compares.
"""

from __future__ import annotations

from collections.abc import Sequence

import xxhash

from drillcore.commit import Commit, Complete
from drillcore.counts import Counts
from drillcore.durable import make_folder, publish, publish_once
from drillcore.errors import (
    FormatError,
    OutputForeignError,
    OutputIdentityError,
    RowCountError,
    UnsupportedVersionError,
    write_error,
)
from drillcore.journal import QuarantineLog
from drillcore.json_fields import JsonValue, canonical_json
from drillcore.layout import Layout, ShardLayout, new_attempt_id
from drillcore.manifest import Manifest, differing_fields
from drillcore.part_file import PartFile, SampleTable
from drillcore.part_info import CommittedPart, FileInfo, PartInfo
from drillcore.part_schema import PartSchema
from drillcore.sample_index import SampleIndex
from drillcore.shard_view import layer_stats


def publish_manifest(layout: Layout, manifest: Manifest) -> None:
    """Claim a folder for a job, or check that it belongs to this job already.

    Raises:
        OutputForeignError: when the folder holds something else.
        OutputIdentityError: when it holds the output of a job with another identity; names each field.
        WriteError: when the volume refuses.
    """
    make_folder(layout.root)
    if not layout.manifest.exists():
        _refuse_foreign(layout)
        publish_once(layout.manifest, manifest.to_bytes(), new_attempt_id())
    try:
        published = Manifest.load(layout.manifest)
    except FormatError as error:
        raise OutputForeignError(
            layout.root, f"the folder holds no output of this drillcore ({error}); choose an empty folder"
        ) from error
    _refuse_other_identity(layout, manifest, published)
    make_folder(layout.shards)
    if manifest.layout == "PerSample":
        make_folder(layout.samples)


def current_commit(shard: ShardLayout) -> Commit | None:
    """The shard's commit; None when there is none, or one that a storage fault broke: it is replaced.

    Raises:
        UnsupportedVersionError: when it is of another format version.
        ReadError: when it cannot be read.
    """
    try:
        return Commit.load(shard.commit)
    except UnsupportedVersionError:
        raise
    except FormatError:
        return None


def publish_commit(
    shard: ShardLayout,
    manifest: Manifest,
    attempt: str,
    *,
    parts: Sequence[PartInfo],
    quarantine: QuarantineLog,
    rows_in: int,
    keep: range | None = None,
) -> Commit:
    """Commit a shard: write its index, then commit.json.

    Args:
        shard: the shard.
        manifest: of this output.
        attempt: of the caller.
        parts: durable and journaled: `Recovered.parts`, then the caller's own.
        quarantine: all quarantined rows of the shard, the recovered ones included.
        rows_in: rows that the shard had to account for.
        keep: only rows in this range count, as in `recover`.

    Returns:
        The commit that counts: ours, or that of another attempt which was first.

    Raises:
        RowCountError: when rows in are not rows out + quarantined.
        OutputIdentityError: when another commit is there that this one must not replace.
        FormatError: when a part changed since it was written.
        WriteError: when the volume refuses.
    """
    quarantine.sync()
    tables, index, used = _indexed(shard, manifest, parts, keep)
    counts = _counts(index, [parts[i] for i in used], quarantine, rows_in)
    if counts.rows_in != counts.rows_out + counts.rows_quarantined:
        raise RowCountError(
            shard.directory,
            f"{rows_in} rows came in, but {counts.rows_out} are stored and {counts.rows_quarantined} quarantined; "
            "start the job again",
        )
    commit = Commit(
        attempt=attempt,
        identity=manifest.identity_sha256,
        max_samples=manifest.max_samples,
        parts=tuple(CommittedPart.of(parts[i]) for i in used),
        index=_publish_index(shard, attempt, index),
        quarantine=quarantine.info,
        counts=counts,
        layer_stats=layer_stats(manifest, [tables[i] for i in used], index),
    )
    if publish_once(shard.commit, commit.to_bytes(), attempt):
        return commit
    return _settle(shard, manifest, commit)


def publish_complete(layout: Layout, manifest: Manifest) -> Complete | None:
    """Write complete.json if every shard is committed.

    Returns:
        What it holds; None when a shard is not committed.

    Raises:
        FormatError: when a commit.json is broken.
        WriteError: when the volume refuses.
    """
    shards = [layout.shard(i) for i in range(manifest.shard_count)]
    if not all(shard.commit.exists() for shard in shards):
        return None
    complete = Complete.of(manifest, [Commit.load(shard.commit) for shard in shards])
    data = complete.to_bytes()
    if not (layout.complete.exists() and layout.complete.read_bytes() == data):
        publish(layout.complete, data, new_attempt_id())
    return complete


def _refuse_foreign(layout: Layout) -> None:
    try:
        names = [path.name for path in layout.root.iterdir()]
    except OSError as error:
        raise write_error(layout.root, error) from error
    foreign = [
        name for name in sorted(names) if not name.startswith((".", layout.manifest.name)) and name != "lost+found"
    ]
    if foreign and not layout.manifest.exists():
        raise OutputForeignError(
            layout.root,
            f"the folder has no manifest.json but holds {', '.join(foreign[:3])}; choose an empty folder",
        )


def _refuse_other_identity(layout: Layout, manifest: Manifest, published: Manifest) -> None:
    ours, theirs = manifest.identity(), published.identity()
    names = differing_fields(ours, theirs)
    if names:
        lines = [f"`{n}` is {_at(theirs, n)} there, {_at(ours, n)} in this job" for n in names]
        raise OutputIdentityError(
            layout.root,
            f"the folder holds the output of another job: {'; '.join(lines)}; choose another folder",
            tuple(names),
        )
    if manifest.shard_count == 1:
        commit = current_commit(layout.shard(0))
        before = published.max_samples if commit is None else commit.max_samples
        if _limit(manifest.max_samples) < _limit(before):
            raise OutputIdentityError(
                layout.root,
                f"`dataset.maxSamples` may grow but not shrink: the output was made with {before or 'all rows'}, "
                f"this job asks for {manifest.max_samples}; choose another folder",
                ("dataset.maxSamples",),
            )


def _settle(shard: ShardLayout, manifest: Manifest, ours: Commit) -> Commit:
    """Decide between our commit and the one that is there."""
    theirs = current_commit(shard)
    if theirs is not None:
        if theirs.identity != ours.identity:
            raise OutputIdentityError(shard.commit, "the shard is committed by another job", ("identity",))
        if theirs.counts.rows_in == ours.counts.rows_in and theirs.max_samples == ours.max_samples:
            return theirs
        if manifest.shard_count != 1 or _limit(ours.max_samples) < _limit(theirs.max_samples):
            raise OutputIdentityError(
                shard.commit,
                f"the shard is committed with {theirs.counts.rows_in} rows in; this attempt has {ours.counts.rows_in}",
                ("dataset.maxSamples",),
            )
    publish(shard.commit, ours.to_bytes(), ours.attempt)
    return ours


def _indexed(
    shard: ShardLayout, manifest: Manifest, parts: Sequence[PartInfo], keep: range | None
) -> tuple[list[SampleTable], SampleIndex, list[int]]:
    schema = PartSchema.of(manifest)
    tables = [PartFile(shard.named(part.name), schema).samples() for part in parts]
    index, used = SampleIndex.build(tables, keep).without_unused_parts()
    return tables, index, used.tolist()


def _publish_index(shard: ShardLayout, attempt: str, index: SampleIndex) -> FileInfo:
    data = index.to_bytes()
    path = shard.sample_index(attempt)
    publish(path, data, attempt)
    return FileInfo(path.name, len(data), xxhash.xxh3_64_hexdigest(data))


def _counts(index: SampleIndex, parts: Sequence[PartInfo], quarantine: QuarantineLog, rows_in: int) -> Counts:
    return Counts(
        rows_in=rows_in,
        rows_out=len(index),
        rows_quarantined=quarantine.num_rows,
        rows_skipped=quarantine.num_skipped,
        tokens=int(index.num_tokens.sum()),
        states=int(index.num_states.sum()),
        bytes=sum(part.total_bytes for part in parts),
    )


def _limit(max_samples: int | None) -> float:
    return float("inf") if max_samples is None else max_samples


def _at(identity: JsonValue, name: str) -> str:
    value = identity
    for key in name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    text = canonical_json(value).decode()
    return text if len(text) <= 60 else text[:57] + "..."
