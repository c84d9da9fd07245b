"""The rows of a shard as requests of the engine, in the dataset's order, tokenised ahead of it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from drillcore.records import QuarantineEntry, QuarantineReason
from drillcore_server.data.feed import RowFeed, prepared_batches
from drillcore_server.data.feed_process import FeedTask, ProcessFeed
from drillcore_server.data.rows import PreparationCounts, PreparedRow
from drillcore_server.engine.request import Request, Sampling
from drillcore_server.shard.preparation import Preparation
from drillcore_spec.extraction import Extraction

logger = logging.getLogger(__name__)


@contextmanager
def open_requests(
    preparation: Preparation, shard: int, skip: NDArray[np.int64] | None = None, *, in_process: bool = False
) -> Iterator[Iterator[Request | QuarantineEntry]]:
    """Requests for a shard's rows without those in `skip`, and the entries of rows that cannot be extracted.

    Rows are made ahead from the moment of the call: the model can be loaded meanwhile.

    Args:
        preparation: the job.
        shard: index of the shard.
        skip: sorted rows that are committed.
        in_process: tokens are made in a child process, so that the engine's Python never waits for them; else in a
            thread, which starts at once.

    Raises:
        ShardError: from the iterator; the dataset cannot be read any more, or has a row that the job does not allow.
    """
    rows = preparation.shard_rows(shard)
    feed: RowFeed | ProcessFeed
    if in_process:
        feed = ProcessFeed(FeedTask(preparation.dataset, preparation.preparer, rows, skip, shard))
    else:
        feed = RowFeed(prepared_batches(preparation.dataset, preparation.preparer, rows, skip, shard=shard))
    with feed:
        yield _requests(preparation, feed)


def _requests(preparation: Preparation, feed: RowFeed | ProcessFeed) -> Iterator[Request | QuarantineEntry]:
    for batch in feed:
        for item in batch:
            yield item if isinstance(item, QuarantineEntry) else request_of(preparation, item)
    _report(feed.counts if isinstance(feed, ProcessFeed) else preparation.preparer.counts)


def _report(counts: PreparationCounts) -> None:
    """Tell what nobody would see in the output."""
    if counts.unsupervised_rows:
        logger.warning("%d rows have a loss mask without any supervised token", counts.unsupervised_rows)
    if counts.dropped_tokens:
        logger.info("%d tokens at the end of the shard fill no context", counts.dropped_tokens)


def request_of(preparation: Preparation, row: PreparedRow) -> Request | QuarantineEntry:
    """The request for a row, or its entry of the quarantine list when none of its tokens can be selected."""
    extraction, generation = preparation.spec.extraction, preparation.spec.generation
    request = Request(
        request_id=row.row,
        prompt_token_ids=row.token_ids,
        positions=extraction.positions,
        position_range=_position_range(extraction),
        loss_mask=row.loss_mask,
        id=row.id,
        original_tokens=row.original_tokens,
        max_tokens=generation.max_tokens,
        sampling=Sampling(generation.temperature, generation.top_p, generation.seed),
        stop_token_ids=preparation.stop_token_ids if preparation.generates else frozenset(),
        file=row.file,
        line=row.line,
    )
    if request.max_states:
        return request
    message = f"positions {extraction.positions.value} select none of {request.num_slots} tokens"
    return QuarantineEntry(row.row, row.file, row.line, row.id, QuarantineReason.NOTHING_SELECTED, message)


def _position_range(extraction: Extraction) -> range | None:
    if extraction.window is not None:
        return range(extraction.window.start, extraction.window.end)
    if extraction.stride is not None:
        return range(extraction.stride.offset, sys.maxsize, extraction.stride.step)
    return None
