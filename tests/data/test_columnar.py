from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drillcore.records import QuarantineEntry, QuarantineReason
from drillcore_server.data import Dataset, SourceRow
from drillcore_server.data.columnar import ArrowFile, ParquetFile
from drillcore_server.data.files import FoundFile
from drillcore_server.errors import ShardError
from drillcore_spec.enums import DatasetFormat
from drillcore_spec.reasons import Reason

Opened = Callable[..., Dataset]


def _write_parquet(path: Path, table: pa.Table) -> None:
    pq.write_table(table, path, row_group_size=7)


def _write_stream(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=5)


def _write_file(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=300)


WRITERS = [
    pytest.param("rows.parquet", _write_parquet, id="parquet"),
    pytest.param("rows.arrow", _write_stream, id="arrow-stream"),
    pytest.param("rows.arrow", _write_file, id="arrow-file"),
]


def _table(count: int) -> pa.Table:
    return pa.table({"text": [f"row {n}" for n in range(count)], "noise": [[n] * 3 for n in range(count)]})


@pytest.mark.parametrize(("name", "write"), WRITERS)
def test_columnar_files_are_datasets(tmp_path: Path, opened: Opened, name: str, write: Any) -> None:
    write(tmp_path / name, _table(600))
    dataset = opened(name)
    assert dataset.num_rows == 600
    assert dataset.format is (DatasetFormat.PARQUET if name.endswith("parquet") else DatasetFormat.ARROW)
    rows = list(dataset.read(range(250, 600)))
    assert [(row.row, row.line) for row in rows] == [(n, n + 1) for n in range(250, 600)]
    assert [row.record for row in rows if isinstance(row, SourceRow)] == [{"text": f"row {n}"} for n in range(250, 600)]


@pytest.mark.parametrize(("name", "write"), WRITERS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(edges=st.lists(st.integers(0, 40), max_size=8))
def test_any_ranges_are_read(tmp_path: Path, name: str, write: Any, edges: list[int]) -> None:
    if not (tmp_path / name).exists():
        write(tmp_path / name, _table(40))
    opener = ParquetFile.open if name.endswith("parquet") else ArrowFile.open
    file = opener(FoundFile(tmp_path / name, name), {"text"})
    ordered = sorted(edges)
    ranges = [range(start, stop) for start, stop in zip(ordered[::2], ordered[1::2], strict=False)]
    got = [row.row for row in file.read(iter(ranges))]
    assert got == [row for wanted in ranges for row in wanted]


def test_row_groups_without_a_wanted_row_are_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    _write_parquet(path, _table(21))
    group = pq.ParquetFile(path).metadata.row_group(0).column(0)
    content = bytearray(path.read_bytes())
    start = group.dictionary_page_offset or group.data_page_offset
    content[start : start + group.total_compressed_size] = b"\xff" * group.total_compressed_size
    path.write_bytes(content)
    file = ParquetFile.open(FoundFile(path, "rows.parquet"), {"text"})
    assert [row.row for row in file.read([range(7, 21)])] == list(range(7, 21))
    with pytest.raises(ShardError, match="cannot be read") as caught:
        list(file.read([range(21)]))
    assert caught.value.reason is Reason.SHARD_UNREADABLE


def test_nested_conversations_are_lists_of_objects(tmp_path: Path, prepared: Callable[..., list[Any]]) -> None:
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    mixed = [{"from": "human", "value": "a", "role": None}, {"from": None, "value": None, "role": "x"}]
    _write_parquet(tmp_path / "rows.parquet", pa.table({"messages": [turns, [], None]}))
    first, empty, missing = prepared(pattern="rows.parquet", columns={"messages": "messages"})
    assert first.loss_mask.any()
    assert empty.reason is QuarantineReason.EMPTY
    assert (missing.reason, missing.line) == (QuarantineReason.BAD_COLUMN, 3)
    _write_parquet(tmp_path / "rows.parquet", pa.table({"messages": [mixed, mixed[:1] * 2]}))
    wrong_role, _ = prepared(pattern="rows.parquet", columns={"messages": "messages"})
    assert "got 'x'" in wrong_role.message


def test_typed_lists_are_token_ids(tmp_path: Path, prepared: Callable[..., list[Any]]) -> None:
    columns = {"ids": pa.array([[1, 2], [3]], pa.list_(pa.int32())), "mask": pa.array([[True, False], [True]])}
    _write_parquet(tmp_path / "rows.parquet", pa.table(columns))
    first, second = prepared(pattern="rows.parquet", columns={"input_ids": "ids", "loss_mask": "mask"})
    assert (first.token_ids.tolist(), first.loss_mask.tolist()) == ([1, 2], [1, 0])
    assert second.token_ids.tolist() == [3]


def test_a_missing_column_is_named_with_all_of_the_schema(tmp_path: Path, opened: Opened) -> None:
    _write_parquet(tmp_path / "rows.parquet", _table(3))
    with pytest.raises(ShardError, match="columns of its first rows are 'text', 'noise'"):
        opened("rows.parquet", columns={"text": "body"})


def test_text_that_is_no_utf8_spoils_only_its_row(tmp_path: Path, opened: Opened) -> None:
    text = pa.array([b"a", b"\xff", b"c"], pa.binary()).view(pa.string())
    _write_stream(tmp_path / "rows.arrow", pa.table({"text": text}))
    first, second, third = opened("rows.arrow").read(range(3))
    assert isinstance(first, SourceRow)
    assert isinstance(second, QuarantineEntry)
    assert isinstance(third, SourceRow)
    assert (second.line, second.reason) == (2, QuarantineReason.UNREADABLE_ROW)


@pytest.mark.parametrize("name", ["rows.parquet", "rows.arrow"])
@pytest.mark.parametrize("content", [b"", b"PAR1", b"ARROW1\0\0", b"text" * 100])
def test_a_file_of_another_format_is_refused(tmp_path: Path, opened: Opened, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ShardError, match=rf"{name} cannot be read") as caught:
        opened(name)
    assert caught.value.reason is Reason.BAD_DATASET


def test_a_columnar_file_that_changes_ends_the_shard(tmp_path: Path, opened: Opened) -> None:
    _write_parquet(tmp_path / "rows.parquet", _table(3))
    dataset = opened("rows.parquet")
    _write_parquet(tmp_path / "rows.parquet", _table(4))
    with pytest.raises(ShardError, match="changed while the job ran"):
        list(dataset.read(range(3)))
