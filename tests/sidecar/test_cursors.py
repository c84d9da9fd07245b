from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from drillcore_server.sidecar.cursors import InOrderCursor, Spans


@given(st.lists(st.integers(1, 5), max_size=30), st.randoms(use_true_random=False), st.integers(0, 2**40))
def test_the_cursor_is_the_end_of_the_unbroken_run(lengths: list[int], shuffler: random.Random, start: int) -> None:
    ends, spans = start, []
    for length in lengths:
        spans.append((ends, ends + length))
        ends += length
    shuffler.shuffle(spans)
    cursor, complete = InOrderCursor(start), set[int]()
    for first, end in spans:
        cursor.complete(first, end)
        complete.update(range(first, end))
        expected = start
        while expected in complete:
            expected += 1
        assert cursor.value == expected
    assert cursor.value == ends


def test_neighbouring_spans_are_one() -> None:
    spans = Spans()
    assert not spans
    for first, end in [(0, 2), (2, 3), (7, 9), (9, 10)]:
        spans.add(first, end)
    assert spans
    assert spans.take() == ((0, 3), (7, 10))
    assert spans.take() == ()
