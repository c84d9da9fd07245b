from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from drillcore_server.ring.layout import RECORD_ALIGNMENT
from drillcore_server.ring.space import ByteSpace, Span

AREA_BYTES = 1024

wishes = st.tuples(st.integers(1, 40), st.integers(1, 12), st.integers(0, 12))
"""Granule, smallest and additional number of granules."""


@given(st.lists(st.one_of(wishes, st.none()), max_size=200))
def test_spans_that_are_held_never_overlap_and_lie_in_the_area(steps: list[tuple[int, int, int] | None]) -> None:
    space, held = ByteSpace(AREA_BYTES), deque[Span]()
    for step in steps:
        if step is None:
            if held:
                space.free(held.popleft().end)
            continue
        granule, fewest, more = step
        span = space.take(fewest * granule, (fewest + more) * granule, granule)
        if span is None:
            continue
        assert fewest * granule <= span.length <= (fewest + more) * granule
        assert span.length % granule == 0
        assert span.offset % RECORD_ALIGNMENT == 0
        assert span.offset + span.length <= AREA_BYTES
        for other in held:
            assert span.offset + span.length <= other.offset or other.offset + other.length <= span.offset
        held.append(span)


@given(st.lists(st.integers(1, AREA_BYTES), min_size=1, max_size=40))
def test_a_record_as_large_as_the_area_always_fits_once_everything_is_free(sizes: list[int]) -> None:
    space = ByteSpace(AREA_BYTES)
    for size in sizes:
        span = space.take(size, size, 1)
        assert span is not None
        space.free(span.end)
    assert space.has(AREA_BYTES)


def test_a_late_release_of_an_empty_record_does_not_take_space_back_twice() -> None:
    space = ByteSpace(AREA_BYTES)
    first = space.take(960, 960, 1)
    assert first is not None
    empty_record_end = space.head
    space.free(first.end)
    second = space.take(512, 512, 1)
    space.free(empty_record_end)
    third = space.take(512, 512, 1)
    assert second is not None
    assert third is not None
    assert {second.offset, third.offset} == {0, 512}
    assert space.take(64, 64, 1) is None
