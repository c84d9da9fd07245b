"""The child of ProcessFeed: one task from stdin, its batches to stdout, then counts or what failed."""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from typing import IO

from drillcore_server.data.feed import RowFeed, prepared_batches
from drillcore_server.data.feed_process import FeedFailure, FeedTask
from drillcore_server.errors import ShardError
from drillcore_spec.reasons import Reason


def main() -> None:
    """Serve the task; ends quietly when nobody reads any more."""
    # Whatever a library prints goes to stderr: the pipe carries batches alone.
    pipe = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        serve(pickle.load(sys.stdin.buffer), pipe)
        pipe.flush()
    except BrokenPipeError:
        os._exit(0)


def serve(task: FeedTask, pipe: IO[bytes]) -> None:
    """Write the batches of a task, then its counts, or what ended it."""
    try:
        batches = prepared_batches(task.dataset, task.preparer, task.rows, task.skip, shard=task.shard)
        with RowFeed(batches) as feed:
            for batch in feed:
                pickle.dump(batch, pipe, protocol=pickle.HIGHEST_PROTOCOL)
                pipe.flush()
    except ShardError as error:
        pickle.dump(FeedFailure(error.reason, error.message), pipe)
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - raised again in the process that reads
        traceback.print_exc()
        pickle.dump(FeedFailure(Reason.INTERNAL, f"preparing rows failed: {error!r}"), pipe)
    else:
        pickle.dump(task.preparer.counts, pipe)


if __name__ == "__main__":
    main()
