"""`drillcore serve` as a process: what it says, how it ends."""

from __future__ import annotations

import json
import signal
import threading
import time
from pathlib import Path

import httpx
import pytest

TIMEOUT_S = 120

pytestmark = pytest.mark.e2e


def ask(url: str, **fields: object) -> httpx.Response:
    headers = {"Authorization": "Bearer key-7"}
    return httpx.post(f"{url}/v1/completions", json=fields, headers=headers, timeout=TIMEOUT_S, trust_env=False)


def test_sigterm_lets_what_runs_finish_and_refuses_what_comes(start, assert_file):
    process = start()
    url = process.url
    answers: list[httpx.Response] = []
    running = threading.Thread(
        target=lambda: answers.append(ask(url, prompt=[5, 9], max_tokens=500, temperature=0, ignore_eos=True))
    )
    running.start()
    deadline = time.monotonic() + TIMEOUT_S
    while "prompts_admitted 1.0" not in httpx.get(f"{url}/metrics", trust_env=False).text:
        assert time.monotonic() < deadline
        assert not answers, "the request ended too soon"

    process.send_signal(signal.SIGTERM)
    refused = None
    while refused is None or refused.status_code == 200:
        refused = ask(url, prompt=[1], max_tokens=0)
    running.join(TIMEOUT_S)

    assert refused.status_code == 503
    assert answers[0].status_code == 200
    assert Path(answers[0].json()["kv_transfer_params"]["hidden_states_path"]).exists()
    assert process.wait(TIMEOUT_S) == 0


def test_a_second_signal_ends_at_once(start):
    process = start()
    url = process.url
    connections = [threading.Thread(target=_ask_and_lose, args=(url,)) for _ in range(3)]
    for connection in connections:
        connection.start()

    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)

    assert process.wait(TIMEOUT_S) == 0
    for connection in connections:
        connection.join(TIMEOUT_S)


def _ask_and_lose(url: str) -> None:
    try:
        ask(url, prompt=[1, 2], max_tokens=500, ignore_eos=True)
    except httpx.TransportError:
        return


def test_the_api_key_of_the_environment_is_asked_for_and_is_in_no_log(start):
    process = start(DRILLCORE_API_KEY="key-7")
    url = process.url

    assert httpx.post(f"{url}/v1/completions", json={"prompt": [1]}, trust_env=False).status_code == 401
    assert ask(url, prompt=[1], max_tokens=0).status_code == 200
    process.terminate()
    out, err = process.communicate(timeout=TIMEOUT_S)

    assert process.returncode == 0
    assert "key-7" not in out + err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--layers", "1,4"], "`layers` must be between 0 and 3"),
        (["--max-model-len", "513"], "`--max-model-len` must be 1 to 512"),
        (["--api-key-file", "/nowhere"], "cannot be read"),
        (["--host", "192.0.2.1"], "cannot be had"),
        (["--max-queue", "0"], "must be at least 1"),
    ],
)
def test_what_cannot_be_served_is_told_in_one_line(start, arguments, said):
    process = start(*arguments)
    out, err = process.communicate(timeout=TIMEOUT_S)

    assert process.returncode == 64
    error = json.loads(out)["error"]
    assert said in error["message"]
    assert "Traceback" not in err
