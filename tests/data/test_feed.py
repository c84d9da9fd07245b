import functools
import io
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drillcore_server.data import RowFeed, RowPreparer, feed, prepared_batches
from drillcore_server.data.feed import Batch
from drillcore_server.data.feed_process import FeedTask, ProcessFeed
from drillcore_server.data.feed_worker import serve
from drillcore_server.errors import ShardError
from drillcore_spec.dataset import DatasetSource
from drillcore_spec.reasons import Reason

WriteRows = Callable[..., Path]


@pytest.fixture
def make_preparer(tokenizer_folder: Path, source_of: Callable[..., DatasetSource]) -> Callable[[], RowPreparer]:
    return functools.partial(RowPreparer, tokenizer_folder, source_of(overlong="Fail"), 100)


def _rows(batches: Any) -> list[int]:
    return [row.row for batch in batches for row in batch]


def test_batches_hold_every_row_in_order_and_are_bounded(
    write_rows: WriteRows, opened: Callable[..., Any], make_preparer: Callable[[], RowPreparer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(feed, "FIRST_BATCH_ROWS", 2)
    monkeypatch.setattr(feed, "MAX_BATCH_ROWS", 8)
    monkeypatch.setattr(feed, "MAX_BATCH_BYTES", 200)
    write_rows([{"text": "a"}] * 20 + [b"{"] + [{"text": "a" * 90}] * 7)
    batches = list(prepared_batches(opened(), make_preparer(), range(28)))
    assert _rows(batches) == list(range(28))
    assert [len(batch) for batch in batches] == [2, 8, 8, 5, 2, 2, 1]


def test_skipped_rows_are_in_no_batch(
    write_rows: WriteRows, opened: Callable[..., Any], make_preparer: Callable[[], RowPreparer]
) -> None:
    write_rows([{"text": "a"}] * 9)
    batches = prepared_batches(opened(), make_preparer(), range(2, 8), np.array([0, 3, 7]))
    assert _rows(batches) == [2, 4, 5, 6]


def test_a_feed_gives_what_its_iterator_gives() -> None:
    with RowFeed(iter([[1], [2, 3]])) as batches:  # type: ignore[list-item]
        assert list(batches) == [[1], [2, 3]]
        assert list(batches) == []


def test_a_feed_is_never_more_than_its_buffer_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "MAX_BUFFERED_BATCHES", 3)
    made, blocked = [], threading.Event()

    def batches() -> Iterator[Batch]:
        for number in range(10):
            made.append(number)
            if number == 3:
                blocked.set()
            yield [number]  # type: ignore[list-item]

    with RowFeed(batches()) as ready:
        assert blocked.wait(timeout=10)
        assert len(made) == 4
        assert [batch[0] for batch in ready] == list(range(10))


def test_a_failure_comes_after_the_batches_before_it() -> None:
    def batches() -> Iterator[Batch]:
        yield [1]  # type: ignore[list-item]
        raise ShardError(Reason.BAD_DATASET, "row 2")

    with RowFeed(batches()) as ready:
        assert next(ready) == [1]
        with pytest.raises(ShardError, match="row 2"):
            next(ready)


def test_leaving_a_feed_early_ends_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "MAX_BUFFERED_BATCHES", 1)
    with RowFeed([n] for n in range(100)) as ready:  # type: ignore[misc]
        next(ready)
    assert "row-feed" not in {thread.name for thread in threading.enumerate()}


def test_a_process_gives_the_same_batches_and_counts(
    write_rows: WriteRows, opened: Callable[..., Any], tokenizer_folder: Path, source_of: Callable[..., DatasetSource]
) -> None:
    write_rows([{"text": f"row {n}"} for n in range(40)])
    dataset = opened(context_size=7)
    source = source_of(context_size=7)
    here, there = (RowPreparer(tokenizer_folder, source, 100) for _ in range(2))
    expected = list(prepared_batches(dataset, here, range(40), shard=2))
    with ProcessFeed(FeedTask(dataset, there, range(40), shard=2)) as batches:
        got = list(batches)
        assert batches.counts == here.counts
    assert here.counts.dropped_tokens > 0
    assert _rows(got) == _rows(expected)
    assert got[1][0].token_ids.tolist() == expected[1][0].token_ids.tolist()  # type: ignore[union-attr]


def test_the_worker_sends_its_failure_after_the_batches_before_it(
    write_rows: WriteRows, opened: Callable[..., Any], make_preparer: Callable[[], RowPreparer]
) -> None:
    write_rows([{"text": f"row {n}"} for n in range(40)] + [{"text": "too long " * 100}])
    pipe = io.BytesIO()
    serve(FeedTask(opened(), make_preparer(), range(41), np.array([5])), pipe)
    pipe.seek(0)
    first, failure = pickle.load(pipe), pickle.load(pipe)
    assert [row.row for row in first] == [n for n in range(17) if n != 5]
    assert failure.reason is Reason.BAD_DATASET
    assert "line 41: the row has" in failure.message
    assert pipe.read() == b""


def test_a_process_that_dies_is_no_silent_end(
    write_rows: WriteRows, opened: Callable[..., Any], make_preparer: Callable[[], RowPreparer]
) -> None:
    write_rows([{"text": "a"}])
    with ProcessFeed(FeedTask(opened(), make_preparer(), range(1))) as batches:
        batches._child.kill()
        with pytest.raises(ShardError, match="ended with exit code -9") as caught:
            next(batches)
    assert caught.value.reason is Reason.INTERNAL
