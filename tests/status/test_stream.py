"""The stream of one job: everything at first, then what is new, and a good end."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator

import httpx
import pytest

from drillcore_status.errors import Unavailable
from drillcore_status.stream import JobStream, StreamSlots
from drillcore_status.views import Shard, ShardPhase

STREAM = "/v1/namespaces/team-a/extractionjobs/a-job/stream"
KEY = ("team-a", "a-job")


def _events(response: httpx.Response) -> Iterator[tuple[str, dict]]:
    kind = ""
    for line in response.iter_lines():
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield kind, json.loads(line.removeprefix("data: "))


def test_a_stream_begins_with_everything(client, jobs):
    jobs.put()
    jobs.shards[KEY] = [Shard(index=0), Shard(index=1)]
    with client.stream("GET", STREAM) as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        assert response.headers["Cache-Control"] == "no-store"
        events = _events(response)
        first = dict(next(events) for _ in range(4))
    assert first.keys() == {"job", "throughput", "events", "shards"}
    assert len(first["shards"]["items"]) == 2


def test_afterwards_it_tells_only_what_changed(client, jobs):
    jobs.put()
    jobs.shards[KEY] = [Shard(index=0), Shard(index=1)]
    with client.stream("GET", STREAM) as response:
        events = _events(response)
        for _ in range(4):
            next(events)
        jobs.shards[KEY] = [Shard(index=0), Shard(index=1, phase=ShardPhase.RUNNING, rows_done=5)]
        kind, data = next(events)
        assert kind == "shards"
        assert [(shard["index"], shard["rowsDone"]) for shard in data["items"]] == [(1, 5)]
        jobs.put(status={"phase": "Failed"})
        kind, data = next(events)
        assert (kind, data["status"]["phase"]) == ("job", "Failed")


def test_it_ends_when_the_job_is_deleted(client, jobs):
    jobs.put()
    with client.stream("GET", STREAM) as response:
        events = _events(response)
        next(events)
        del jobs.jobs[KEY]
        assert [kind for kind, _ in events][-1] == "gone"


def test_it_ends_when_the_token_is_not_good_any_more(client, jobs, tokens):
    jobs.put()
    with client.stream("GET", STREAM) as response:
        events = _events(response)
        next(events)
        tokens.readers.clear()
        kind, data = list(events)[-1]
    assert (kind, data["code"]) == ("error", 401)


def test_it_outlives_a_cluster_that_cannot_be_asked_and_says_so_once(client, jobs):
    jobs.put()
    with client.stream("GET", STREAM) as response:
        events = _events(response)
        for _ in range(3):
            next(events)
        jobs.problem = Unavailable("the API server does not answer")
        assert next(events)[0] == "unavailable"
        threading.Timer(0.1, lambda: setattr(jobs, "problem", None)).start()
        jobs.put(status={"phase": "Running"})
        assert next(events)[0] == "job"


def test_text_with_line_breaks_stays_one_message(client, jobs):
    jobs.put(spec={"note": "a\n\nevent: gone\ndata: {}\r\n\u2028"})
    with client.stream("GET", STREAM) as response:
        kind, data = next(_events(response))
    assert (kind, data["spec"]["note"]) == ("job", "a\n\nevent: gone\ndata: {}\r\n\u2028")


def test_a_client_that_leaves_gives_its_stream_back(services, jobs):
    slots = StreamSlots(limit=1)

    async def listen_and_leave() -> int:
        messages = JobStream(services, *KEY, "reader-of-team-a").messages(slots)
        await anext(messages)
        assert slots.num_open == 1
        await messages.aclose()
        return slots.num_open

    jobs.put()
    assert asyncio.run(listen_and_leave()) == 0


def test_more_streams_than_the_limit_are_refused_with_a_time_to_come_back():
    slots = StreamSlots(limit=1)
    with slots.taken(), pytest.raises(Exception, match="poll the job instead") as refused:
        slots.check()
    assert (refused.value.code, refused.value.retry_after_s) == (429, 10)


def test_a_silent_stream_sends_a_comment_now_and_then(services, jobs, monkeypatch):
    monkeypatch.setattr("drillcore_status.stream.KEEP_ALIVE_S", 0.05)

    async def listen() -> str:
        messages = JobStream(services, *KEY, "reader-of-team-a").messages(StreamSlots())
        async for message in messages:
            if message.startswith(":"):
                return message
        return ""

    jobs.put()
    assert asyncio.run(listen()) == ": still here\n\n"
