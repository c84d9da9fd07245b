"""The second process of a shard: drains the ring, writes parts, commits.

| module | what it owns |
|---|---|
| `__main__` | binds the doorbell before anything heavy is imported |
| `session` | one process, one attempt: hello, ready, drain, commit, the exit code |
| `attempt` | the output: identity, recovery, journal, quarantine file, commit |
| `drain` | the event loop: doorbell, writers, timers |
| `sample_router` | records to samples, samples to writers |
| `writer_load` | which writer gets the next sample, and when a part is full |
| `part_thread` | one writer thread: parts, one after another |
| `cursors` | in-order release and durability of work that ends out of order |
| `row_ledger` | every row once |
| `progress` | progress.json beside the ring |
| `progress_poster` | the same counts to the job-status API |

    ring ──► drain thread ──► part thread 0 ──► part-00000, part-00002 …
                  │     └───► part thread 1 ──► part-00001 …
                  ◄── written, part durable ──┘

The drain thread touches descriptors only; a part thread hands the ring's own memory to write(2). Neither torch nor
the engine is ever imported here.
"""
