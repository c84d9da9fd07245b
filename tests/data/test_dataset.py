import hashlib
import json
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore.records import QuarantineEntry, QuarantineReason
from drillcore_server.data import Dataset, SourceRow, dataset_file, dataset_identity
from drillcore_server.data.dataset import wanted_ranges
from drillcore_server.errors import ShardError
from drillcore_spec.dataset import DatasetSource
from drillcore_spec.enums import DatasetFormat
from drillcore_spec.reasons import Reason

Opened = Callable[..., Dataset]
WriteRows = Callable[..., Path]


def _texts(count: int, first: int = 0) -> list[dict[str, str]]:
    return [{"text": f"row {number}"} for number in range(first, first + count)]


def _read(dataset: Dataset, rows: range, skip: list[int] | None = None) -> list[tuple[int, str]]:
    skipped = None if skip is None else np.array(skip, dtype=np.int64)
    return [(row.row, row.record["text"]) for row in dataset.read(rows, skipped) if isinstance(row, SourceRow)]


def test_rows_count_on_over_the_sorted_files(write_rows: WriteRows, opened: Opened) -> None:
    write_rows(_texts(3, first=2), "b.jsonl")
    write_rows(_texts(2), "a.jsonl")
    write_rows([b"", b"  "], "aa.jsonl")
    dataset = opened()
    assert dataset.num_rows == 5
    assert dataset.format is DatasetFormat.JSONL
    assert _read(dataset, range(5)) == [(n, f"row {n}") for n in range(5)]
    assert [(row.file, row.line) for row in dataset.read(range(1, 3))] == [("a.jsonl", 2), ("b.jsonl", 1)]


def test_max_samples_keeps_the_first_rows_over_all_files(write_rows: WriteRows, opened: Opened) -> None:
    write_rows(_texts(3), "a.jsonl")
    write_rows(_texts(3, first=3), "b.jsonl")
    assert opened(max_samples=4).num_rows == 4
    assert opened(max_samples=100).num_rows == 6


@given(num_rows=st.integers(0, 100), count=st.integers(1, 120))
def test_shards_are_contiguous_and_of_nearly_equal_size(num_rows: int, count: int) -> None:
    dataset = Dataset((), DatasetFormat.JSONL, None, num_rows, ())
    shards = [dataset.shard_rows(index, count) for index in range(count)]
    assert [row for shard in shards for row in shard] == list(range(num_rows))
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


@given(start=st.integers(0, 20), length=st.integers(0, 20), skip=st.sets(st.integers(0, 45)))
def test_wanted_ranges_are_the_rows_without_the_skipped_ones(start: int, length: int, skip: set[int]) -> None:
    rows = range(start, start + length)
    ranges = list(wanted_ranges(rows, np.array(sorted(skip), dtype=np.int64)))
    assert [row for part in ranges for row in part] == [row for row in rows if row not in skip]
    assert all(part.stop < following.start for part, following in pairwise(ranges))


def test_skipped_rows_are_left_out_over_file_borders(write_rows: WriteRows, opened: Opened) -> None:
    write_rows(_texts(4), "a.jsonl")
    write_rows(_texts(4, first=4), "b.jsonl")
    got = _read(opened(), range(1, 7), skip=[0, 2, 3, 4, 7, 99])
    assert got == [(n, f"row {n}") for n in (1, 5, 6)]


def test_a_skipped_row_is_not_even_parsed(write_rows: WriteRows, opened: Opened) -> None:
    write_rows([*_texts(1), b"{broken", *_texts(1, first=2)])
    assert _read(opened(), range(3), skip=[1]) == [(0, "row 0"), (2, "row 2")]
    (fault,) = (row for row in opened().read(range(3)) if isinstance(row, QuarantineEntry))
    assert (fault.row, fault.file, fault.line) == (1, "rows.jsonl", 2)
    assert fault.reason is QuarantineReason.UNREADABLE_ROW


@pytest.mark.parametrize("rows", [[], [b"", b" "]])
def test_a_dataset_without_rows_is_refused(write_rows: WriteRows, opened: Opened, rows: list[bytes]) -> None:
    write_rows(rows)
    with pytest.raises(ShardError, match="has no rows") as caught:
        opened()
    assert caught.value.reason is Reason.BAD_DATASET


def test_a_dataset_without_a_readable_row_is_refused_with_its_first_fault(
    write_rows: WriteRows, opened: Opened
) -> None:
    write_rows([b"[", b'{"text": "a"},', b'{"text": "b"},', b"]"])
    with pytest.raises(ShardError, match=r"no readable row; rows\.jsonl, line 1: .*jq") as caught:
        opened()
    assert caught.value.reason is Reason.BAD_DATASET


def test_a_readable_row_far_behind_broken_ones_is_enough(write_rows: WriteRows, opened: Opened) -> None:
    write_rows([*[b"{broken"] * 300, {"text": "a"}])
    assert opened().num_rows == 301


def test_a_missing_column_is_named_with_those_that_are_there(write_rows: WriteRows, opened: Opened) -> None:
    write_rows([{"prompt": "a", "conversations": []}, {"name": 1}])
    with pytest.raises(ShardError) as caught:
        opened(columns={"messages": "messages", "id": "key"})
    assert caught.value.reason is Reason.BAD_DATASET
    first, second = caught.value.message.splitlines()
    assert "`spec.dataset.columns.messages`" in first
    assert "'prompt', 'conversations', 'name'" in first
    assert "`spec.dataset.columns.id`" in second
    assert "'key'" in second


def test_a_column_that_only_a_later_row_has_is_enough(write_rows: WriteRows, opened: Opened) -> None:
    write_rows([{"other": 1}] * 10 + [{"text": "a"}])
    assert opened().num_rows == 11


def test_a_file_that_cannot_be_read_is_refused(write_rows: WriteRows, opened: Opened, tmp_path: Path) -> None:
    write_rows(_texts(1), "a.jsonl")
    (tmp_path / "b.jsonl").symlink_to("/proc/self/mem")
    with pytest.raises(ShardError, match=r"b\.jsonl cannot be read") as caught:
        opened()
    assert caught.value.reason is Reason.BAD_DATASET


def test_identity_holds_the_content_of_each_file(
    write_rows: WriteRows, opened: Opened, source_of: Callable[..., DatasetSource]
) -> None:
    path = write_rows(_texts(2), "a.jsonl")
    source = source_of(max_samples=2)
    got = dataset_identity(opened(), source)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert got["files"] == [{"path": "a.jsonl", "bytes": path.stat().st_size, "sha256": digest}]
    assert got["columns"] == {"text": "text"}
    assert (got["lossMask"], got["maxSamples"], got["format"]) == ("None", 2, "Jsonl")
    os.utime(path, (1, 1))
    assert dataset_identity(opened(), source) == got


def test_identity_of_a_large_file_is_its_size_and_time(
    write_rows: WriteRows, opened: Opened, source_of: Callable[..., DatasetSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset_file, "MAX_HASHED_BYTES", 10)
    path = write_rows(_texts(2), "a.jsonl")
    (file,) = opened().files
    assert file.to_json() == {"path": "a.jsonl", "bytes": path.stat().st_size, "mtimeNs": path.stat().st_mtime_ns}


def test_identity_differs_with_each_setting_that_changes_tokens(
    write_rows: WriteRows, opened: Opened, source_of: Callable[..., DatasetSource]
) -> None:
    write_rows([{"text": "a", "messages": [], "id": 1}])
    dataset = opened()
    columns = {"messages": "messages"}
    settings = [
        dataset_identity(dataset, source_of()),
        dataset_identity(dataset, source_of(columns=columns)),
        dataset_identity(dataset, source_of(columns=columns), chat_template="{{ messages }}"),
        dataset_identity(dataset, source_of(columns=columns, chat_template_kwargs={"a": "1"})),
        dataset_identity(dataset, source_of(columns=columns, loss_mask="None")),
        dataset_identity(dataset, source_of(columns={"text": "text", "id": "id"})),
        dataset_identity(dataset, source_of(overlong="Skip")),
        dataset_identity(dataset, source_of(context_size=8)),
    ]
    assert len({json.dumps(setting, sort_keys=True) for setting in settings}) == len(settings)
