"""Which tokens of a range have their states kept."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore_server.connector.metadata import SampleHeader
from drillcore_server.connector.positions import extend_loss_mask, select_positions
from drillcore_spec.enums import PositionsKind


def header(kind: PositionsKind, mask=None, selected=None) -> SampleHeader:
    mask = None if mask is None else np.array(mask, dtype=np.uint8)
    return SampleHeader(4, kind, 10, streams=True, position_range=selected, loss_mask=mask)


@pytest.mark.parametrize("kind", [PositionsKind.ALL, PositionsKind.MEAN])
@given(st.integers(0, 20), st.integers(1, 20))
def test_all_and_mean_take_every_token(kind, first, count):
    assert select_positions(header(kind), first, first + count).tolist() == list(range(first, first + count))


@given(
    st.builds(range, st.integers(0, 30), st.integers(0, 60), st.integers(1, 9)),
    st.integers(1, 40),
    st.lists(st.integers(0, 40), max_size=4),
)
def test_a_range_is_kept_however_the_tokens_are_cut(selected, total, cuts):
    kept = header(PositionsKind.STRIDE, selected=selected)
    edges = [0, *sorted(min(cut, total) for cut in cuts), total]

    got = [select_positions(kept, first, end).tolist() for first, end in itertools.pairwise(edges)]

    assert list(itertools.chain.from_iterable(got)) == [p for p in range(total) if p in selected]


def test_last_keeps_the_end_of_each_range():
    assert select_positions(header(PositionsKind.LAST), 3, 9).tolist() == [8]


@given(st.lists(st.integers(0, 1), min_size=1, max_size=20), st.integers(0, 10), st.data())
def test_loss_mask_keeps_masked_tokens_and_all_generated_ones(mask, generated, data):
    total = len(mask) + generated
    cuts = sorted(data.draw(st.lists(st.integers(0, total), max_size=4)))
    got = []
    for first, end in zip([0, *cuts], [*cuts, total], strict=True):
        got += select_positions(header(PositionsKind.LOSS_MASK, mask), first, end).tolist()

    whole = [*mask, *[1] * generated]
    assert got == [i for i, kept in enumerate(whole) if kept]


@pytest.mark.parametrize("kind", [PositionsKind.LOSS_MASK, PositionsKind.WINDOW, PositionsKind.STRIDE])
def test_a_kind_without_its_mask_or_range_is_an_error(kind):
    with pytest.raises(ValueError, match=f"row 4: positions {kind.value}"):
        select_positions(header(kind), 0, 3)


def test_generated_tokens_are_masked_in():
    mask = np.array([0, 1], dtype=np.uint8)

    assert extend_loss_mask(mask, 4).tolist() == [0, 1, 1, 1]
    assert extend_loss_mask(mask, 2) is mask
    assert extend_loss_mask(None, 5) is None
