import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore_server.data import line_index
from drillcore_server.data.line_index import ROWS_PER_CHECKPOINT, LineIndex, LineIndexer

Place = tuple[int, int]
"""Lines and bytes before a row."""


def _naive_places(content: bytes) -> list[Place]:
    places, offset = [], 0
    for number, line in enumerate(content.split(b"\n")):
        text = line[3:] if number == 0 and line.startswith(b"\xef\xbb\xbf") else line
        if text.strip():
            places.append((number, offset))
        offset += len(line) + 1
    return places


def _indexed(content: bytes, chunk_size: int) -> LineIndex:
    indexer = LineIndexer()
    for start in range(0, len(content), chunk_size):
        indexer.add(content[start : start + chunk_size])
    return indexer.finish()


@given(
    lines=st.lists(st.sampled_from([b"", b" ", b"\t\r", b"{}", b" {}", b"x\r", b"long" * 5]), max_size=30),
    ending=st.sampled_from([b"", b"\n"]),
    mark=st.sampled_from([b"", b"\xef\xbb\xbf"]),
    chunk_size=st.integers(3, 40),
)
def test_rows_are_the_lines_that_are_not_blank_wherever_chunks_end(
    lines: list[bytes], ending: bytes, mark: bytes, chunk_size: int
) -> None:
    content = mark + b"\n".join(lines) + ending
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_index, "ROWS_PER_CHECKPOINT", 1)
        index = _indexed(content, chunk_size)
        got = [index.nearest(row) for row in range(index.num_rows)]
    assert [(place.line, place.offset) for place in got] == _naive_places(content)


def test_the_nearest_checkpoint_is_at_or_before_the_row() -> None:
    content = b"\n".join(b'{"n": %d}' % number for number in range(3 * ROWS_PER_CHECKPOINT))
    index = _indexed(content, 1000)
    places = _naive_places(content)
    for row in (0, 1, ROWS_PER_CHECKPOINT - 1, ROWS_PER_CHECKPOINT, 2 * ROWS_PER_CHECKPOINT + 7):
        found = index.nearest(row)
        assert row - ROWS_PER_CHECKPOINT < found.row <= row
        assert (found.line, found.offset) == places[found.row]


def test_an_index_takes_sixteen_bytes_for_a_thousand_rows() -> None:
    chunk = b'{"text": "a row of a dataset"}\n' * 1000
    indexer = LineIndexer()
    indexer.add(chunk)
    tracemalloc.start()
    for _ in range(2000):
        indexer.add(chunk)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert indexer.finish().num_rows == 2_001_000
    assert kept < 100_000
