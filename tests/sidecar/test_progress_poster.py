"""Posts to a real HTTP server."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from drillcore_server.sidecar.progress import ShardProgress
from drillcore_server.sidecar.progress_poster import ProgressPoster, ProgressTarget
from drillcore_spec.enums import ShardState
from drillcore_spec.messages import ProgressReport


class Receiver:
    """Keeps what is posted; answers with the next of `statuses`, then with 204."""

    def __init__(self) -> None:
        self.posts: Queue[tuple[str | None, dict[str, Any]]] = Queue()
        self.statuses: list[int] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                receiver.posts.put((self.headers["Authorization"], body))
                self.send_response(receiver.statuses.pop(0) if receiver.statuses else 204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/progress"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    thread = threading.Thread(target=receiver.server.serve_forever)
    thread.start()
    yield receiver
    receiver.server.shutdown()
    thread.join()
    receiver.server.server_close()


@pytest.fixture
def progress() -> ShardProgress:
    return ShardProgress(shard=2, attempt="5f2c9a10", rows_total=10, state=ShardState.RUNNING)


def start(receiver: Receiver, progress: ShardProgress, token_path: Path, interval_s: float = 300.0) -> ProgressPoster:
    target = ProgressTarget(receiver.url, None, token_path)
    return ProgressPoster(target, progress.report, random.Random(0), interval_s)


def test_it_posts_at_the_start_when_told_and_at_the_end(
    receiver: Receiver, progress: ShardProgress, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    poster = start(receiver, progress, token)
    authorization, report = receiver.posts.get(timeout=10)
    assert authorization == "Bearer first"
    assert ProgressReport.model_validate(report) == progress.report(0)

    token.write_text("second\n")
    progress.rows_durable = 4
    poster.post_now()
    authorization, report = receiver.posts.get(timeout=10)
    assert (authorization, report["seq"], report["rowsDone"]) == ("Bearer second", 1, 4)

    progress.state = ShardState.COMMITTED
    poster.close()
    assert receiver.posts.get(timeout=10)[1]["state"] == "Committed"
    assert receiver.posts.empty()
    assert poster.num_failures == 0


def test_it_posts_again_after_the_interval(receiver: Receiver, progress: ShardProgress, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t")
    poster = start(receiver, progress, token, interval_s=0.01)
    seqs = [receiver.posts.get(timeout=10)[1]["seq"] for _ in range(3)]
    poster.close()
    assert seqs == [0, 1, 2]


def test_failures_are_counted_logged_and_survived(
    receiver: Receiver, progress: ShardProgress, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = tmp_path / "token"
    poster = start(receiver, progress, token, interval_s=0.01)
    receiver.statuses = [503, 401]
    token.write_text("t")
    seqs = [receiver.posts.get(timeout=10)[1]["seq"] for _ in range(3)]
    poster.close()
    assert seqs == sorted(set(seqs))
    assert poster.num_failures >= 2
    assert "the work goes on" in caplog.text
    assert "503" in caplog.text


def test_a_target_that_does_not_answer_does_not_hold_up_the_end(progress: ShardProgress, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t")
    target = ProgressTarget("https://127.0.0.1:9/progress", "no certificate", token)
    poster = ProgressPoster(target, progress.report, random.Random(0))
    poster.close()
    assert poster.num_failures >= 1


def test_the_target_comes_from_the_environment() -> None:
    target = ProgressTarget.from_environment(
        {"DRILLCORE_PROGRESS_URL": "https://api/p", "DRILLCORE_PROGRESS_CA": "PEM"}
    )
    assert (target.url, target.ca_pem) == ("https://api/p", "PEM")
    assert str(target.token_path) == "/var/run/drillcore/token"
