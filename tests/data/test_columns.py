from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from drillcore.records import QuarantineReason
from drillcore_server.data.columns import read_id, read_input_ids, read_loss_mask, read_text
from drillcore_server.data.rows import RowFault


def _fault(read: Callable[[], Any]) -> RowFault:
    with pytest.raises(RowFault) as caught:
        read()
    assert len(caught.value.message) < 300
    caught.value.message.encode()
    return caught.value


@pytest.mark.parametrize(("value", "expected"), [("a", "a"), (17, "17"), (2**70, str(2**70)), (None, None), ("", "")])
def test_an_id_is_text_or_a_whole_number(value: object, expected: str | None) -> None:
    assert read_id({"id": value}, "id") == expected


def test_a_row_without_id_or_a_job_without_id_column_has_none() -> None:
    assert read_id({}, "id") is None
    assert read_id({"id": 1}, None) is None


@pytest.mark.parametrize("value", [True, 1.5, ["a"], {}, "\ud800", "x" * 1025])
def test_an_id_of_another_kind_is_a_bad_column(value: object) -> None:
    assert _fault(lambda: read_id({"id": value}, "id")).reason is QuarantineReason.BAD_COLUMN


def test_text_is_taken_as_it_is() -> None:
    assert read_text({"text": " a\r\n\u2028🎉 "}, "text") == " a\r\n\u2028🎉 "


@pytest.mark.parametrize(
    ("record", "reason", "said"),
    [
        ({"text": None}, QuarantineReason.BAD_COLUMN, "must be text; got None"),
        ({"text": 5}, QuarantineReason.BAD_COLUMN, "must be text; got 5"),
        ({"text": ["a"] * 1000}, QuarantineReason.BAD_COLUMN, "got ['a', 'a', 'a', ...]"),
        ({"text": ""}, QuarantineReason.EMPTY, "is empty"),
        ({"text": "ab\ud83d"}, QuarantineReason.BAD_COLUMN, "lone surrogate 0xd83d at character 3"),
        ({"body": "a", "\ud800": 1}, QuarantineReason.BAD_COLUMN, r"is missing; the row has 'body', '\ud800'"),
    ],
)
def test_text_that_is_none_is_refused(record: dict[str, Any], reason: QuarantineReason, said: str) -> None:
    fault = _fault(lambda: read_text(record, "text"))
    assert fault.reason is reason
    assert said in fault.message


def test_ids_that_are_given_are_never_altered() -> None:
    unusual = [1, 1, 0, 2**62, -5, 1]
    assert read_input_ids({"ids": unusual}, "ids").tolist() == unusual
    assert read_input_ids({"ids": np.array([3, 1], dtype=np.int32)}, "ids").tolist() == [3, 1]


@pytest.mark.parametrize(
    ("value", "reason", "said"),
    [
        ([], QuarantineReason.EMPTY, "is empty"),
        (None, QuarantineReason.BAD_COLUMN, "must be a list of token ids; got None"),
        ("1 2", QuarantineReason.BAD_COLUMN, "must be a list"),
        ([1, 2.0], QuarantineReason.BAD_COLUMN, "got 2.0 at index 1"),
        ([1, True], QuarantineReason.BAD_COLUMN, "got True at index 1"),
        ([1, None], QuarantineReason.BAD_COLUMN, "got None at index 1"),
        ([1, [2]], QuarantineReason.BAD_COLUMN, "got [2] at index 1"),
        ([1, 2**63], QuarantineReason.BAD_COLUMN, "no signed 64-bit integer"),
    ],
)
def test_ids_of_another_kind_are_refused(value: object, reason: QuarantineReason, said: str) -> None:
    fault = _fault(lambda: read_input_ids({"ids": value}, "ids"))
    assert fault.reason is reason
    assert said in fault.message


def test_a_mask_is_zeros_and_ones_or_truth_values() -> None:
    mask = read_loss_mask({"mask": [0, 1, True, False]}, "mask", 4)
    assert mask.dtype == np.uint8
    assert mask.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([0, 1], "one entry for each of the 3 tokens; got 2"),
        ([0, 1, 2], "got 2 at index 2"),
        ([0, -1, 1], "got -1 at index 1"),
        ([0, 1.0, 1], "got 1.0 at index 1"),
        (None, "must be a list of zeros and ones"),
    ],
)
def test_a_mask_of_another_kind_is_refused(value: object, said: str) -> None:
    fault = _fault(lambda: read_loss_mask({"mask": value}, "mask", 3))
    assert fault.reason is QuarantineReason.BAD_COLUMN
    assert said in fault.message
