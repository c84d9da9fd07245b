import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drillcore.records import QuarantineReason
from drillcore_server.data import jsonl
from drillcore_server.data.files import FoundFile
from drillcore_server.data.jsonl import JsonlFile
from drillcore_server.data.rows import RowFault
from drillcore_server.errors import ShardError
from drillcore_spec.reasons import Reason

WriteRows = Callable[..., Path]


def _open(path: Path) -> JsonlFile:
    return JsonlFile.open(FoundFile(path, path.name))


def _contents(path: Path) -> list[Any]:
    file = _open(path)
    return [row.content for row in file.read([range(file.num_rows)])]


def test_blank_lines_are_no_rows_but_count_as_lines(write_rows: WriteRows) -> None:
    file = _open(write_rows([b"", {"a": 0}, b"  \t", b"\r", {"a": 1}, b""]))
    rows = list(file.read([range(2)]))
    assert [(row.row, row.line, row.content) for row in rows] == [(0, 2, {"a": 0}), (1, 5, {"a": 1})]


@pytest.mark.parametrize(
    "content", [b'{"a": 1}\n{"a": 2}', b'{"a": 1}\r\n{"a": 2}\r\n', b'\xef\xbb\xbf{"a": 1}\n{"a": 2}']
)
def test_line_ends_byte_order_mark_and_a_last_line_without_end(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "rows.jsonl").write_bytes(content)
    assert _contents(tmp_path / "rows.jsonl") == [{"a": 1}, {"a": 2}]


def test_a_unicode_line_separator_is_text_and_no_line_end(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"a": "x\u2028y\x0bz"}\n'.replace("\x0b", "\\u000b"), encoding="utf-8")
    assert _contents(tmp_path / "rows.jsonl") == [{"a": "x\u2028y\x0bz"}]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"a": ', "Expecting value at character 8"),
        (b'{"a": 1} {"a": 2}', "Extra data"),
        (b'["a"]', "got ['a']"),
        (b"null", "got None"),
        (b"17", "got 17"),
        (b'{"a": "\xff\xfe"}', "byte 8 is 0xff"),
        (b'{"a": ' + b"9" * 5000 + b"}", "5000 digits"),
        (b"[" * 100_000, "recursion"),
        (b"\xff\xfe{\x00}\x00", "byte 1 is 0xff"),
    ],
)
def test_a_line_that_is_no_json_object_is_a_fault_of_that_row_alone(
    write_rows: WriteRows, line: bytes, said: str
) -> None:
    before, fault, after = _contents(write_rows([{"a": 0}, line, {"a": 1}]))
    assert (before, after) == ({"a": 0}, {"a": 1})
    assert isinstance(fault, RowFault)
    assert fault.reason is QuarantineReason.UNREADABLE_ROW
    assert said in fault.message
    assert len(fault.message) < 300


def test_a_line_that_is_too_long_is_not_loaded(write_rows: WriteRows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "MAX_LINE_BYTES", 100)
    monkeypatch.setattr(jsonl, "_CHUNK_BYTES", 16)
    path = write_rows([{"a": 0}, {"a": "x" * 500}, b" " * 500, {"a": "y" * 80}, b" " * 200 + b'{"a": 3}'])
    first, fault, third, padded = _contents(path)
    assert (first, third) == ({"a": 0}, {"a": "y" * 80})
    assert isinstance(fault, RowFault)
    assert isinstance(padded, RowFault)
    assert "longer than" in fault.message


def test_ranges_are_read_with_their_line_numbers(tmp_path: Path) -> None:
    count = 5000
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"n": {n}}}\n\n' for n in range(count)))
    file = _open(tmp_path / "rows.jsonl")
    assert file.num_rows == count
    wanted = [range(3, 5), range(1023, 1026), range(4998, 5000)]
    got = [(row.row, row.line, row.content) for row in file.read(wanted)]
    assert got == [(n, 2 * n + 1, {"n": n}) for rows in wanted for n in rows]


def test_gzip_is_read_as_its_content(tmp_path: Path) -> None:
    lines = [json.dumps({"n": n, "text": "x" * (n % 50)}) for n in range(3000)]
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    file = _open(tmp_path / "rows.jsonl.gz")
    got = [row.content for row in file.read([range(1, 2), range(2500, 2502)])]
    assert got == [json.loads(lines[n]) for n in (1, 2500, 2501)]


def test_a_cut_gzip_file_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(os.urandom(5000))
    (tmp_path / "rows.jsonl.gz").write_bytes(whole[:-100])
    with pytest.raises(ShardError, match=r"rows\.jsonl\.gz cannot be read") as caught:
        _open(tmp_path / "rows.jsonl.gz")
    assert caught.value.reason is Reason.BAD_DATASET


def test_a_file_that_changes_between_passes_ends_the_shard(write_rows: WriteRows) -> None:
    path = write_rows([{"a": 0}])
    file = _open(path)
    write_rows([{"a": 0}, {"a": 1}])
    with pytest.raises(ShardError, match="changed while the job ran") as caught:
        list(file.read([range(1)]))
    assert caught.value.reason is Reason.SHARD_UNREADABLE


def test_a_file_that_is_gone_ends_the_shard(write_rows: WriteRows) -> None:
    path = write_rows([{"a": 0}])
    file = _open(path)
    path.unlink()
    with pytest.raises(ShardError, match="No such file") as caught:
        list(file.read([range(1)]))
    assert caught.value.reason is Reason.SHARD_UNREADABLE


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(content=st.binary(max_size=200) | st.text(st.sampled_from('{}[]",:\n\r \\u0dE-'), max_size=80).map(str.encode))
def test_any_bytes_give_rows_or_faults(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "rows.jsonl").write_bytes(content.removeprefix(b"\x1f\x8b"))
    contents = _contents(tmp_path / "rows.jsonl")
    assert all(isinstance(row, dict | RowFault) for row in contents)
