from __future__ import annotations

import numpy as np
import pytest

from drillcore_server.errors import ShardError
from drillcore_server.sidecar.row_ledger import RowLedger


def test_every_row_once_is_all_rows() -> None:
    ledger = RowLedger(100, 6, rows_are_contexts=False)
    ledger.recover(np.array([101, 103]), [105])
    for row in (100, 102):
        ledger.store(row)
    with pytest.raises(ShardError, match="expected 6 rows from 100 on; got 4 stored and 1 quarantined"):
        ledger.require_all()
    ledger.quarantine(104)
    assert ledger.require_all() == 6
    assert (ledger.num_stored, ledger.num_quarantined) == (4, 2)


@pytest.mark.parametrize("row", [99, 106, -1, 2**62])
def test_a_row_of_another_shard_is_refused(row: int) -> None:
    ledger = RowLedger(100, 6, rows_are_contexts=False)
    with pytest.raises(ShardError, match=f"row {row} is not of this shard"):
        ledger.store(row)
    with pytest.raises(ShardError, match=f"row {row} is not of this shard"):
        ledger.quarantine(row)


def test_a_row_that_came_before_is_refused() -> None:
    ledger = RowLedger(0, 10, rows_are_contexts=False)
    ledger.recover(np.array([2]), [3])
    for row in (2, 3):
        with pytest.raises(ShardError, match=f"row {row} "):
            ledger.store(row)
        with pytest.raises(ShardError, match=f"row {row} "):
            ledger.quarantine(row)
    assert ledger.num_rows == 2


def test_contexts_are_numbered_apart_from_quarantined_rows_and_their_number_is_open() -> None:
    first = 3 << 40
    ledger = RowLedger(first, None, rows_are_contexts=True)
    ledger.recover(np.array([first, first + 1]), [0])
    ledger.store(first + 100_000)
    assert ledger.quarantine(1)
    with pytest.raises(ShardError, match="came twice"):
        ledger.store(first + 1)
    assert ledger.require_all() == 5


def test_rows_that_an_earlier_attempt_quarantined_come_again_with_contexts() -> None:
    ledger = RowLedger(0, None, rows_are_contexts=True)
    ledger.recover(np.array([0, 1]), [7])
    assert not ledger.quarantine(7)
    assert ledger.require_all() == 3
