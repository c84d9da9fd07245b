"""Bad rows of every kind, from the file to the quarantine: file, line and reason, and the rows around them go on."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from drillcore.records import QuarantineEntry, QuarantineReason
from drillcore_server.data import PreparedRow, RowPreparer, open_dataset
from drillcore_server.data.feed import prepared_batches
from drillcore_server.errors import ShardError
from drillcore_server.volumes import Volumes
from drillcore_spec.dataset import DatasetSource
from drillcore_spec.reasons import Reason

BAD_COLUMN, EMPTY, UNREADABLE = QuarantineReason.BAD_COLUMN, QuarantineReason.EMPTY, QuarantineReason.UNREADABLE_ROW
USER = {"role": "user", "content": "The sea?"}
GOOD = {
    "text": "The sea is blue.",
    "messages": [USER, {"role": "assistant", "content": "Blue."}],
    "ids": [1, 2, 3],
    "mask": [0, 1, 1],
    "key": "a",
}
COLUMNS = {
    "text": {"text": "text", "id": "key"},
    "messages": {"messages": "messages", "id": "key"},
    "ids": {"inputIds": "ids", "id": "key"},
    "mask": {"inputIds": "ids", "lossMask": "mask", "id": "key"},
    "key": {"text": "text", "id": "key"},
}


@dataclass(frozen=True)
class Bad:
    """One fault of a row."""

    column: str
    value: Any
    reason: QuarantineReason
    said: str


def _turns(*turns: Any) -> list[Any]:
    return [USER, *turns]


TYPED = {
    "text is null": Bad("text", None, BAD_COLUMN, "must be text; got None"),
    "text is empty": Bad("text", "", EMPTY, "is empty"),
    "messages are null": Bad("messages", None, BAD_COLUMN, "must be a list of messages; got None"),
    "messages are empty": Bad("messages", [], EMPTY, "has no messages"),
    "a turn is null": Bad("messages", _turns(None), BAD_COLUMN, "messages[1] must be an object"),
    "an unknown role": Bad("messages", _turns({"role": "Bot", "content": "a"}), BAD_COLUMN, "got 'Bot'"),
    "no role": Bad("messages", _turns({"role": None, "content": "a"}), BAD_COLUMN, "got None"),
    "an empty turn": Bad("messages", _turns({"role": "assistant", "content": ""}), EMPTY, "messages[1]"),
    "a blank turn": Bad("messages", _turns({"role": "assistant", "content": " \n"}), EMPTY, "has no text"),
    "content is null": Bad("messages", _turns({"role": "assistant", "content": None}), BAD_COLUMN, "must have text"),
    "nobody is answered": Bad("messages", [USER], QuarantineReason.NO_ASSISTANT_TURN, "no assistant turn"),
    "the template refuses": Bad("messages", _turns(USER), BAD_COLUMN, "the chat template refuses"),
    "ids are null": Bad("ids", None, BAD_COLUMN, "must be a list of token ids; got None"),
    "ids are empty": Bad("ids", [], EMPTY, "is empty"),
    "an id is null": Bad("ids", [1, None], BAD_COLUMN, "got None at index 1"),
    "an id is negative": Bad("ids", [1, -1], BAD_COLUMN, "must be 0 to 999; got -1 at index 1"),
    "an id beyond the vocabulary": Bad("ids", [1, 1000], BAD_COLUMN, "must be 0 to 999; got 1000 at index 1"),
    "an id of 63 bits": Bad("ids", [2**63 - 1], BAD_COLUMN, "must be 0 to 999"),
    "the mask is null": Bad("mask", None, BAD_COLUMN, "must be a list of zeros and ones"),
    "the mask is too short": Bad("mask", [0, 1], BAD_COLUMN, "each of the 3 tokens; got 2"),
    "the mask has a two": Bad("mask", [0, 1, 2], BAD_COLUMN, "got 2 at index 2"),
    "the key is too long": Bad("key", "k" * 1025, BAD_COLUMN, "at most 1024 bytes"),
}
"""Values of a column's own type, which every format holds."""
UNTYPED = {
    "text is a number": Bad("text", 7, BAD_COLUMN, "must be text; got 7"),
    "text has half a surrogate pair": Bad("text", "a\ud800", BAD_COLUMN, "lone surrogate 0xd800 at character 2"),
    "messages are text": Bad("messages", json.dumps(GOOD["messages"]), BAD_COLUMN, "must be a list of messages"),
    "messages are one turn": Bad("messages", USER, BAD_COLUMN, "must be a list of messages"),
    "a turn is text": Bad("messages", _turns("Blue."), BAD_COLUMN, "messages[1] must be an object"),
    "content is a number": Bad("messages", _turns({"role": "assistant", "content": 7}), BAD_COLUMN, "got 7"),
    "a part is a picture": Bad(
        "messages", _turns({"role": "user", "content": [{"type": "image"}]}), BAD_COLUMN, "must be a text part"
    ),
    "ids are text": Bad("ids", "1 2 3", BAD_COLUMN, "must be a list of token ids"),
    "an id is a fraction": Bad("ids", [1, 2.0], BAD_COLUMN, "got 2.0 at index 1"),
    "an id is true": Bad("ids", [1, True], BAD_COLUMN, "got True at index 1"),
    "an id of 64 bits": Bad("ids", [2**63], BAD_COLUMN, "no signed 64-bit integer"),
    "an id of 200 bits": Bad("ids", [2**200], BAD_COLUMN, "no signed 64-bit integer"),
    "the key is a fraction": Bad("key", 1.5, BAD_COLUMN, "must be text or a whole number; got 1.5"),
    "the key is a list": Bad("key", [1], BAD_COLUMN, "must be text or a whole number; got [1]"),
}
"""Values of another type, which JSON Lines hold."""
LINES = {
    "a line is cut": (b'{"text": "The s', "character"),
    "a line is a list": (b'["a"]', "must be one JSON object; got ['a']"),
    "a line is null": (b"null", "must be one JSON object; got None"),
    "two objects on a line": (b'{"text": "a"} {"text": "b"}', "Extra data"),
    "no UTF-8": (b'{"text": "\xff"}', "must be UTF-8; byte 11 is 0xff"),
    "a byte order mark in the middle": (b'\xef\xbb\xbf{"text": "a"}', "UTF-8 BOM"),
    "a number of 5,000 digits": (b'{"text": ' + b"9" * 5000 + b"}", "5000 digits"),
    "a list a hundred thousand deep": (b"[" * 100_000, "recursion"),
}


@pytest.fixture
def job_rows(tmp_path: Path, tokenizer_folder: Path, template_text: Callable[[str], str]) -> Callable[..., list[Any]]:
    """`job_rows("rows.jsonl", columns)`: what a job's engine gets of a file under tmp_path."""

    def read(name: str, columns: dict[str, str]) -> list[PreparedRow | QuarantineEntry]:
        uri = (tmp_path / name).as_uri()
        source = DatasetSource.model_validate({"uri": uri, "columns": columns})
        dataset = open_dataset(source, Volumes(Path("/nowhere")))
        preparer = RowPreparer(tokenizer_folder, source, 512, chat_template=template_text("mistral"))
        return [row for batch in prepared_batches(dataset, preparer, range(dataset.num_rows)) for row in batch]

    return read


def _check_bad_row_between_good_ones(rows: list[Any], name: str, reason: QuarantineReason, said: str) -> None:
    before, bad, after = rows
    assert isinstance(before, PreparedRow)
    assert isinstance(after, PreparedRow)
    assert before.token_ids.tolist() == after.token_ids.tolist()
    assert isinstance(bad, QuarantineEntry)
    assert (bad.row, bad.file, bad.line, bad.reason) == (1, name, 2, reason)
    assert said in bad.message
    assert bad.message.isprintable()
    assert len(bad.message) < 400


def _with(bad: Bad) -> list[dict[str, Any]]:
    return [GOOD, GOOD | {bad.column: bad.value}, GOOD]


def _write_jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _write_gzip(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))


def _write_columnar(path: Path, rows: list[dict[str, Any]]) -> None:
    _write_table(path, pa.Table.from_pylist(rows))


def _write_table(path: Path, table: pa.Table) -> None:
    if path.suffix == ".parquet":
        pq.write_table(table, path)
        return
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)


WRITERS = {
    "rows.jsonl": _write_jsonl,
    "rows.jsonl.gz": _write_gzip,
    "rows.parquet": _write_columnar,
    "rows.arrow": _write_columnar,
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("kind", TYPED)
def test_a_bad_value_spoils_its_row_alone_in_every_format(
    tmp_path: Path, job_rows: Callable[..., list[Any]], kind: str, name: str
) -> None:
    bad = TYPED[kind]
    WRITERS[name](tmp_path / name, _with(bad))
    _check_bad_row_between_good_ones(job_rows(name, COLUMNS[bad.column]), name, bad.reason, bad.said)


@pytest.mark.parametrize("kind", UNTYPED)
def test_a_value_of_another_type_spoils_its_row_alone(
    tmp_path: Path, job_rows: Callable[..., list[Any]], kind: str
) -> None:
    bad = UNTYPED[kind]
    _write_jsonl(tmp_path / "rows.jsonl", _with(bad))
    _check_bad_row_between_good_ones(job_rows("rows.jsonl", COLUMNS[bad.column]), "rows.jsonl", bad.reason, bad.said)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("kind", LINES)
def test_a_bad_line_spoils_its_row_alone_whatever_ends_and_begins_the_file(
    tmp_path: Path, job_rows: Callable[..., list[Any]], kind: str, start: bytes, end: bytes
) -> None:
    line, said = LINES[kind]
    good = json.dumps(GOOD).encode()
    (tmp_path / "rows.jsonl").write_bytes(start + end.join([good, line, good, b""]))
    _check_bad_row_between_good_ones(job_rows("rows.jsonl", COLUMNS["text"]), "rows.jsonl", UNREADABLE, said)


@pytest.mark.parametrize("name", ["rows.parquet", "rows.arrow"])
def test_text_that_is_no_utf8_spoils_its_row_alone(
    tmp_path: Path, job_rows: Callable[..., list[Any]], name: str
) -> None:
    text = pa.array([b"a", b"\xff", b"a"], pa.binary()).view(pa.string())
    _write_table(tmp_path / name, pa.table({"text": text}))
    _check_bad_row_between_good_ones(job_rows(name, {"text": "text"}), name, UNREADABLE, "byte 0xff")


def test_an_arrow_column_of_two_types_spoils_the_rows_of_the_other_type(
    tmp_path: Path, job_rows: Callable[..., list[Any]]
) -> None:
    kinds = pa.array([0, 1, 0], pa.int8())
    text = pa.UnionArray.from_sparse(kinds, [pa.array(["a", "", "a"]), pa.array([0, 7, 0])])
    _write_table(tmp_path / "rows.arrow", pa.table({"text": text}))
    rows = job_rows("rows.arrow", {"text": "text"})
    _check_bad_row_between_good_ones(rows, "rows.arrow", BAD_COLUMN, "must be text; got 7")


@pytest.mark.parametrize("name", ["rows.parquet", "rows.arrow"])
@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (pa.array([[1, 2, 3], [2**63], [1, 2, 3]], pa.list_(pa.uint64())), "no signed 64-bit integer"),
        (pa.array([[1, 2, 3], None, [1, 2, 3]], pa.list_(pa.int32(), 3)), "got None"),
        (pa.array([[1, 2, 3], [4, None], [1, 2, 3]], pa.large_list(pa.int16())), "got None at index 1"),
    ],
)
def test_ids_of_every_width_are_checked(
    tmp_path: Path, job_rows: Callable[..., list[Any]], name: str, ids: pa.Array, said: str
) -> None:
    _write_table(tmp_path / name, pa.table({"ids": ids}))
    _check_bad_row_between_good_ones(job_rows(name, {"inputIds": "ids"}), name, BAD_COLUMN, said)


def _gzip_cut() -> bytes:
    return gzip.compress(json.dumps(GOOD).encode() * 500)[:-20]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("rows.jsonl", json.dumps([GOOD, GOOD], indent=1).encode(), "no readable row.*line 1.*jq"),
        ("rows.jsonl", json.dumps(GOOD).encode("utf-16"), "no readable row.*must be UTF-8; byte 1 is 0xff"),
        ("rows.jsonl", b"\r".join([json.dumps(GOOD).encode()] * 2), "no readable row.*Extra data"),
        ("rows.jsonl", b"PAR1", "no readable row"),
        ("rows.jsonl", b"\xef\xbb\xbf\r\n", "has no rows"),
        ("rows.jsonl.gz", _gzip_cut(), "rows.jsonl.gz cannot be read: "),
        ("rows.jsonl.gz", gzip.compress(b"", mtime=0), "has no rows"),
        ("rows.parquet", json.dumps(GOOD).encode(), "rows.parquet cannot be read: "),
        ("rows.arrow", json.dumps(GOOD).encode(), "rows.arrow cannot be read: "),
    ],
)
def test_a_file_without_a_usable_row_is_one_error(
    tmp_path: Path, job_rows: Callable[..., list[Any]], name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ShardError, match=said) as caught:
        job_rows(name, COLUMNS["text"])
    assert caught.value.reason is Reason.BAD_DATASET


@pytest.mark.parametrize("name", ["rows.parquet", "rows.arrow"])
def test_a_column_that_is_there_twice_is_one_error(
    tmp_path: Path, job_rows: Callable[..., list[Any]], name: str
) -> None:
    twice = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"]), pa.array([1])], names=["text", "text", "other"])
    _write_table(tmp_path / name, twice)
    with pytest.raises(ShardError, match="must have one column 'text'; got 2") as caught:
        job_rows(name, {"text": "text"})
    assert caught.value.reason is Reason.BAD_DATASET


@pytest.mark.parametrize("name", ["rows.parquet", "rows.arrow"])
def test_a_columnar_file_without_a_readable_row_is_not_told_of_json(
    tmp_path: Path, job_rows: Callable[..., list[Any]], name: str
) -> None:
    text = pa.array([b"\xff"], pa.binary()).view(pa.string())
    _write_table(tmp_path / name, pa.table({"text": text}))
    with pytest.raises(ShardError, match=r"no readable row; rows\.\w+, line 1: the row cannot be read") as caught:
        job_rows(name, {"text": "text"})
    assert "JSON" not in caught.value.message
