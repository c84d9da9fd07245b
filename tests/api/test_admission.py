"""A full queue says when to come again; a server that ends finishes what runs and refuses what comes."""

from __future__ import annotations

import threading
import time

import httpx

from drillcore_server.api import body

HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
IDS = [5, 9, 200]
TIMEOUT_S = 60


def test_a_full_queue_says_when_to_come_again_and_serves_who_does(serve, monkeypatch):
    server = serve(max_queue=3)
    monkeypatch.setattr(server.engine.sink, "has_room", lambda: False)
    waiting = [server.connect(prompt=IDS, max_tokens=1) for _ in range(3)]
    server.wait_until(lambda: server.services.admission.num_admitted == 3, "the queue is full")

    refused = server.post(prompt=IDS, max_tokens=1)
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "queue_full")
    assert int(refused.headers["Retry-After"]) >= 1

    monkeypatch.undo()
    for connection in waiting:
        assert b"200 OK" in connection.recv(65536)
        connection.close()
    server.assert_whole()
    assert server.post(prompt=IDS, max_tokens=1).status_code == 200


def test_more_prompts_than_the_queue_ever_has_are_refused_for_good(serve):
    answer = serve(max_queue=2).post(prompt=[[1], [2], [3]], max_tokens=1)

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "prompt")


def test_a_refused_request_takes_no_place(serve):
    server = serve(max_queue=1)
    for _ in range(5):
        assert server.post(prompt=[10**6], max_tokens=1).status_code == 400
        assert server.post(prompt=IDS, max_tokens=1, stream=True, kv_transfer_params={"x": 1}).status_code == 400
    assert server.post(prompt=IDS, max_tokens=1).status_code == 200


def test_while_the_server_ends_what_runs_is_finished_and_what_comes_is_refused(serve, monkeypatch, assert_file):
    server = serve()
    monkeypatch.setattr(server.engine.sink, "has_room", lambda: False)
    answers: list[httpx.Response] = []
    running = threading.Thread(target=lambda: answers.append(server.post(prompt=IDS, max_tokens=1)))
    running.start()
    server.wait_until(lambda: server.services.admission.num_admitted == 1, "a request runs")

    server.services.admission.drain()
    refused = server.post(prompt=IDS, max_tokens=1)
    health = server.get("/health")
    monkeypatch.undo()
    running.join(TIMEOUT_S)

    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "unavailable")
    assert "Retry-After" in refused.headers
    assert health.status_code == 503
    assert_file(answers[0].json()["kv_transfer_params"]["hidden_states_path"], IDS)


def test_half_open_connections_and_halves_of_bodies_keep_nobody_waiting(serve):
    server = serve()
    halves = []
    for sent in (b"", b"POST /v1/comp", HEAD, HEAD + b'{"prompt": ['):
        for _ in range(50):
            halves.append(server.open_connection())
            halves[-1].sendall(sent)

    started_s = time.monotonic()
    for _ in range(10):
        assert server.post(prompt=IDS, max_tokens=1).status_code == 200
    assert time.monotonic() - started_s < TIMEOUT_S
    assert server.services.admission.num_admitted == 0
    for connection in halves:
        connection.close()
    server.assert_whole()


def test_a_body_that_stops_coming_is_given_up(serve, monkeypatch):
    monkeypatch.setattr(body, "BODY_TIMEOUT_S", 0.2)
    server = serve()
    with server.open_connection() as connection:
        connection.sendall(HEAD + b'{"prompt": [')
        assert b"408" in connection.recv(65536).split(b"\r\n")[0]
    assert server.services.bodies._held_bytes == 0


def test_a_slow_reader_holds_no_blocks_and_keeps_nobody_waiting(serve, assert_file):
    server = serve()
    slow = [server.connect(prompt=IDS, max_tokens=400, ignore_eos=True, stream=True, seed=i) for i in range(20)]
    server.wait_until(lambda: server.services.metrics.tally.files == 20, "all of their files are there")

    told = server.post(prompt=IDS, max_tokens=1).json()["kv_transfer_params"]

    assert_file(told["hidden_states_path"], IDS)
    core = server.engine.engine
    assert server.in_engine(lambda: core.kv.pool.num_available) == core.config.num_blocks - 1
    for connection in slow:
        connection.close()
    server.assert_whole()
