from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from drillcore.commit import Commit
from drillcore.dtypes import StoreDType
from drillcore.journal import Journal, QuarantineLog
from drillcore.layout import Layout, ShardLayout
from drillcore.manifest import Manifest, ModelIdentity
from drillcore.part_info import PartInfo
from drillcore.part_schema import PartSchema
from drillcore.part_writer import PartWriter
from drillcore.publish import publish_commit, publish_complete, publish_manifest
from drillcore.records import QuarantineEntry, QuarantineReason, SampleEnd
from drillcore.sample_part_writer import SamplePartWriter

SYNCS = ThreadPoolExecutor(2)
"""Waits for the disk, with layout PerSample."""

BASE = Manifest(
    engine_version="0.1.0",
    model=ModelIdentity("file:///models/tiny", None, "c" * 64, "d" * 64, "e" * 64),
    dataset={
        "uri": "file:///data/chat.jsonl",
        "files": [{"path": "chat.jsonl", "bytes": 1234, "sha256": "f" * 64}],
        "maxSamples": None,
    },
    layers=(2, 0),
    final_norm=True,
    hidden_size=8,
    positions="All",
    dtype=StoreDType.F32,
    store_dtype=StoreDType.F32,
    generation=None,
    max_model_len=64,
    shard_count=1,
    special_token_ids=(0, 1),
)


@dataclass(frozen=True, eq=False)
class Row:
    """One sample with states that follow from its row number: what a test expects to read back."""

    row: int
    id: str | None
    token_ids: np.ndarray
    states: np.ndarray
    positions: np.ndarray | None
    loss_mask: np.ndarray | None

    @property
    def end(self) -> SampleEnd:
        norms = np.linalg.norm(self.states.astype(np.float64), axis=-1)
        largest = np.abs(self.states.astype(np.float64)).max(axis=(0, 2), initial=0.0)
        return SampleEnd(
            row=self.row,
            id=self.id,
            token_ids=self.token_ids,
            num_prompt_tokens=len(self.token_ids) - 1,
            original_tokens=len(self.token_ids) + 2,
            last_token=None if self.row % 2 else 7,
            num_states=len(self.states),
            positions=self.positions,
            loss_mask=self.loss_mask,
            norm_sums=norms.sum(axis=0),
            max_abs=largest,
        )


@dataclass
class Maker:
    """Makes outputs with drillcore's own writer, as the sidecar does."""

    root: Path
    manifest: Manifest = BASE
    parts: dict[int, list[PartInfo]] = field(default_factory=dict)

    @property
    def layout(self) -> Layout:
        return Layout(self.root)

    @property
    def schema(self) -> PartSchema:
        return PartSchema.of(self.manifest)

    def vary(self, **changes: object) -> Maker:
        return Maker(self.root, replace(self.manifest, **changes))  # type: ignore[arg-type]

    def row(self, row: int, *, loss_mask: bool = False) -> Row:
        rng = np.random.default_rng(row)
        num_tokens = int(rng.integers(2, 9))
        positions = None
        num_states = num_tokens
        if self.manifest.positions != "All":
            num_states = 1 if self.manifest.positions in ("Last", "Mean") else int(rng.integers(1, num_tokens + 1))
            if self.manifest.positions != "Mean":
                positions = np.sort(rng.choice(num_tokens, num_states, replace=False)).astype(np.int32)
        shape = (num_states, len(self.manifest.columns), self.manifest.hidden_size)
        return Row(
            row=row,
            id=None if row % 3 == 0 else f"id-{row}-é",
            token_ids=rng.integers(0, 50, num_tokens),
            states=rng.standard_normal(shape).astype(self.manifest.store_dtype.numpy),
            positions=positions,
            loss_mask=rng.integers(0, 2, num_tokens).astype(np.uint8) if loss_mask else None,
        )

    def claim(self) -> None:
        publish_manifest(self.layout, self.manifest)

    def write(self, writer: PartWriter | SamplePartWriter, rows: Iterable[int], *, loss_mask: bool = False) -> None:
        for number in rows:
            row = self.row(number, loss_mask=loss_mask)
            for chunk in np.array_split(row.states, 2):
                writer.append(memoryview(np.ascontiguousarray(chunk).view(np.uint8).reshape(-1)))
            writer.end_sample(row.end)

    def part_writer(
        self, folder: ShardLayout, number: int, attempt: str, syncs: Executor = SYNCS
    ) -> PartWriter | SamplePartWriter:
        if self.schema.per_sample:
            return SamplePartWriter(folder, number, attempt, self.schema, syncs)
        return PartWriter(folder.part(number, attempt), self.schema)

    def part(
        self,
        rows: Iterable[int],
        *,
        shard: int = 0,
        number: int = 0,
        attempt: str = "00000001",
        loss_mask: bool = False,
    ) -> PartInfo:
        folder = self.layout.shard(shard)
        folder.directory.mkdir(parents=True, exist_ok=True)
        if self.schema.per_sample:
            folder.samples.mkdir(exist_ok=True)
        writer = self.part_writer(folder, number, attempt)
        self.write(writer, rows, loss_mask=loss_mask)
        info = writer.close()
        assert info is not None
        return info

    def journal(self, parts: Sequence[PartInfo], *, shard: int = 0, attempt: str = "00000001") -> None:
        journal = Journal(self.layout.shard(shard), attempt)
        for part in parts:
            journal.append(part)
        journal.close()

    def quarantined(self, row: int, *, skipped: bool = False) -> QuarantineEntry:
        return QuarantineEntry(row, "chat.jsonl", row + 1, None, QuarantineReason.EMPTY, "the row has no text", skipped)

    def shard(
        self,
        parts: Sequence[Iterable[int]],
        *,
        shard: int = 0,
        attempt: str = "00000001",
        quarantined: Sequence[int] = (),
        loss_mask: bool = False,
        commit: bool = True,
    ) -> Commit | None:
        """One whole shard: parts with the given rows, journal, quarantine and commit."""
        self.claim()
        infos = [
            self.part(rows, shard=shard, number=n, attempt=attempt, loss_mask=loss_mask) for n, rows in enumerate(parts)
        ]
        folder = self.layout.shard(shard)
        folder.directory.mkdir(parents=True, exist_ok=True)
        self.journal(infos, shard=shard, attempt=attempt)
        log = QuarantineLog(folder, attempt, [self.quarantined(row) for row in quarantined])
        try:
            if not commit:
                return None
            rows_in = sum(part.num_rows for part in infos) + len(quarantined)
            return publish_commit(folder, self.manifest, attempt, parts=infos, quarantine=log, rows_in=rows_in)
        finally:
            log.close()

    def complete(self) -> None:
        publish_complete(self.layout, self.manifest)


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    return Maker(tmp_path / "out")


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Maker]:
    """A maker of an output whose manifest differs from the usual one in the given fields."""

    def build(**changes: object) -> Maker:
        return Maker(tmp_path / "out", replace(BASE, **changes))  # type: ignore[arg-type]

    return build


@pytest.fixture(scope="session")
def session_maker(tmp_path_factory: pytest.TempPathFactory) -> Maker:
    """For property tests, whose examples share their fixtures: makes rows; its folder is not used by others."""
    return Maker(tmp_path_factory.mktemp("session") / "out")
