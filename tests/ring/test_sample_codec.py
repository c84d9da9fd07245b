from __future__ import annotations

import contextlib
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore.records import SampleEnd
from drillcore_server.ring.errors import RingCorruptError
from drillcore_server.ring.sample_codec import decode_sample_end, encode_sample_end


@st.composite
def sample_ends(draw: st.DrawFn) -> SampleEnd:
    tokens, states, columns = draw(st.integers(0, 9)), draw(st.integers(0, 9)), draw(st.integers(1, 3))
    numbers = st.floats(0, 1e300)

    def array(elements: st.SearchStrategy[Any], count: int, dtype: type) -> Any:
        return np.array(draw(st.lists(elements, min_size=count, max_size=count)), dtype)

    return SampleEnd(
        row=draw(st.integers(0, 2**60)),
        id=draw(st.none() | st.text(st.characters(), max_size=5)),
        token_ids=array(st.integers(0, 2**62), tokens, np.int64),
        num_prompt_tokens=tokens,
        original_tokens=draw(st.integers(0, 2**40)),
        last_token=draw(st.none() | st.integers(0, 2**20)),
        num_states=states,
        positions=draw(st.none()) if draw(st.booleans()) else array(st.integers(0, 2**31 - 1), states, np.int32),
        loss_mask=None if draw(st.booleans()) else array(st.integers(0, 1), tokens, np.uint8),
        norm_sums=array(numbers, columns, np.float64),
        max_abs=array(numbers, columns, np.float64),
        first_state=draw(st.integers(0, 9)),
    )


@given(sample_ends())
def test_a_sample_end_comes_back_with_every_field(end: SampleEnd) -> None:
    got = decode_sample_end(end.row, encode_sample_end(end))
    for field in fields(SampleEnd):
        expected, actual = getattr(end, field.name), getattr(got, field.name)
        assert type(expected) is type(actual), field.name
        np.testing.assert_array_equal(actual, expected, err_msg=field.name)


@given(sample_ends(), st.data())
def test_changed_bytes_give_a_sample_or_our_error(end: SampleEnd, data: st.DataObject) -> None:
    raw = bytearray(encode_sample_end(end))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(raw[: data.draw(st.integers(0, len(raw)))])
    with contextlib.suppress(RingCorruptError):
        assert decode_sample_end(7, cut).row == 7


def test_a_record_shorter_than_its_head_is_refused() -> None:
    with pytest.raises(RingCorruptError, match="at least 80 bytes; got 3"):
        decode_sample_end(4, b"abc")
