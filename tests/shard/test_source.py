"""The rows of a shard as requests."""

from __future__ import annotations

import json

import numpy as np

from drillcore.records import QuarantineEntry
from drillcore_server.estimate import estimate_job
from drillcore_server.shard.preparation import prepare
from drillcore_server.shard.source import open_requests
from drillcore_server.volumes import Volumes
from drillcore_spec import parse_spec


def _content(items):
    return [
        (item.row, item.reason)
        if isinstance(item, QuarantineEntry)
        else (item.request_id, item.id, item.file, item.line, item.prompt_token_ids.tolist())
        for item in items
    ]


def test_a_process_gives_the_same_requests_as_a_thread(job_spec, tmp_path):
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write("{broken\n")
    preparation = prepare(parse_spec(json.dumps(job_spec)), Volumes(tmp_path))
    skip = np.array([1])

    with open_requests(preparation, 0, skip) as requests:
        in_thread = _content(requests)
    with open_requests(preparation, 0, skip, in_process=True) as requests:
        in_process = _content(requests)

    assert [content[0] for content in in_thread] == [0, 2, 3]
    assert in_thread[0][1:4] == ("row-0", "rows.jsonl", 1)
    assert in_thread[2][1] == "UnreadableRow"
    assert in_process == in_thread


def test_rows_that_train_nothing_are_told(changed, tmp_path, caplog):
    rows = [{"ids": [1, 2], "mask": [0, 0]}, {"ids": [1, 2], "mask": [0, 1]}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = parse_spec(json.dumps(changed("dataset.columns", {"inputIds": "ids", "lossMask": "mask"})))
    preparation = prepare(spec, Volumes(tmp_path))
    with caplog.at_level("INFO", logger="drillcore_server.shard.source"), open_requests(preparation, 0) as requests:
        assert len(list(requests)) == 2
    assert caplog.messages == ["1 rows have a loss mask without any supervised token"]
    assert estimate_job(spec, Volumes(tmp_path)).rows_unsupervised == 1
