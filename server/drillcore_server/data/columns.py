"""What the columns of a row hold."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drillcore.records import QuarantineReason
from drillcore_server.data.rows import RowFault, shown

MAX_ID_BYTES = 1024
"""A row's own id travels with every sample: it is a name, not a document."""


def read_id(record: Mapping[str, Any], column: str | None) -> str | None:
    """The row's own id as text; None when the job or the row has none.

    Raises:
        RowFault: BAD_COLUMN when it is no text or whole number, or too long.
    """
    value = None if column is None else record.get(column)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise _bad_column(column, f"must be text or a whole number; got {shown(value)}")
    try:
        text = str(value)
        size_bytes = len(text.encode("utf-8"))
    except ValueError:
        raise _bad_column(column, f"must be UTF-8 text or a whole number; got {shown(value)}") from None
    if size_bytes > MAX_ID_BYTES:
        raise _bad_column(column, f"must have at most {MAX_ID_BYTES} bytes; got {size_bytes}")
    return text


def read_text(record: Mapping[str, Any], column: str) -> str:
    """The text of a row.

    Raises:
        RowFault: BAD_COLUMN when it is no text; EMPTY when there is none in it.
    """
    value = _value(record, column)
    if not isinstance(value, str):
        raise _bad_column(column, f"must be text; got {shown(value)}")
    if not value:
        raise RowFault(QuarantineReason.EMPTY, f"column {column!r} is empty")
    return checked_text(value, f"column {column!r}")


def read_input_ids(record: Mapping[str, Any], column: str) -> NDArray[np.int64]:
    """The token ids [S] of a row, exactly as they stand there.

    Raises:
        RowFault: BAD_COLUMN when it is no list of whole numbers of 64 bits, sign included; EMPTY when S is 0.
    """
    ids = _int_array(record, column, "token ids")
    if len(ids) == 0:
        raise RowFault(QuarantineReason.EMPTY, f"column {column!r} is empty")
    return ids


def read_loss_mask(record: Mapping[str, Any], column: str, num_tokens: int) -> NDArray[np.uint8]:
    """The loss mask [num_tokens] of a row.

    Raises:
        RowFault: BAD_COLUMN when it is no list of num_tokens zeros and ones.
    """
    mask = _int_array(record, column, "zeros and ones", accept_bool=True)
    if len(mask) != num_tokens:
        raise _bad_column(column, f"must have one entry for each of the {num_tokens} tokens; got {len(mask)}")
    wrong = np.flatnonzero((mask != 0) & (mask != 1))
    if len(wrong):
        raise _bad_column(column, f"must hold zeros and ones; got {mask[wrong[0]]} at index {wrong[0]}")
    return mask.astype(np.uint8)


def checked_text(text: str, where: str) -> str:
    """The same text.

    Raises:
        RowFault: BAD_COLUMN when it holds half a surrogate pair, which no tokenizer takes.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        found = f"{ord(text[error.start]):#06x} at character {error.start + 1}"
        raise RowFault(
            QuarantineReason.BAD_COLUMN, f"{where} must be valid Unicode; got the lone surrogate {found}"
        ) from None
    return text


def check_vocabulary(token_ids: NDArray[np.int64], vocab_size: int) -> None:
    """Refuse ids without an embedding.

    Raises:
        RowFault: BAD_COLUMN, naming the first one.
    """
    outside = np.flatnonzero((token_ids < 0) | (token_ids >= vocab_size))
    if len(outside):
        raise RowFault(
            QuarantineReason.BAD_COLUMN,
            f"token ids must be 0 to {vocab_size - 1}; got {token_ids[outside[0]]} at index {outside[0]}",
        )


def _value(record: Mapping[str, Any], column: str) -> Any:
    if column not in record:
        listed = ", ".join(shown(name) for name in islice(record, 10)) or "none"
        raise _bad_column(column, f"is missing; the row has {listed}")
    return record[column]


def _int_array(record: Mapping[str, Any], column: str, what: str, *, accept_bool: bool = False) -> NDArray[np.int64]:
    values = _value(record, column)
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if not isinstance(values, list):
        raise _bad_column(column, f"must be a list of {what}; got {shown(values)}")
    kinds = set(map(type, values))
    if not kinds <= ({int, bool} if accept_bool else {int}):
        index, value = next(
            (i, v) for i, v in enumerate(values) if type(v) is not int and not (accept_bool and type(v) is bool)
        )
        raise _bad_column(column, f"must be a list of {what}; got {shown(value)} at index {index}")
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError:
        raise _bad_column(
            column, f"must be a list of {what}; got a number that no signed 64-bit integer holds"
        ) from None


def _bad_column(column: str | None, message: str) -> RowFault:
    return RowFault(QuarantineReason.BAD_COLUMN, f"column {column!r} {message}")
