"""Bodies of megabytes, many at once, in a process of its own: memory stays bounded and everybody is answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from drillcore_server.api.body import BODIES_IN_FLIGHT
from drillcore_server.api.settings import ServeSettings

pytestmark = pytest.mark.e2e

TIMEOUT_S = 120
MIB = 1 << 20
BODY_BYTES = ServeSettings.max_body_bytes
PARSING_BYTES = 512 * MIB
"""One body is parsed at a time: its numbers as Python objects and as an array, and what malloc keeps of them."""
NUM_CLIENTS = 96


def test_bodies_of_megabytes_need_bounded_memory(start):
    process = start()
    url = process.url
    assert _ask(url, b'{"prompt": [5], "max_tokens": 0}').status_code == 200
    status = Path(f"/proc/{process.pid}/status")
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # the peak counts from here
    before = _bytes_of(status, "VmRSS")

    with ThreadPoolExecutor(NUM_CLIENTS) as clients:
        codes = Counter(clients.map(lambda number: _code_of(url, _BODIES[number % 4]), range(NUM_CLIENTS)))

    grown = _bytes_of(status, "VmHWM") - before
    assert set(codes) <= {400, 413, 429}, codes
    assert codes[400] > 0, codes
    assert codes[413] > 0, codes
    assert grown < BODIES_IN_FLIGHT * BODY_BYTES + PARSING_BYTES, f"{grown / MIB:.0f} MiB"
    assert _ask(url, b'{"prompt": [5], "max_tokens": 0}').status_code == 200


def _chunks_of_ten_megabytes() -> Iterator[bytes]:
    """Without a Content-Length, which would be refused at once."""
    yield b'{"prompt": ['
    for _ in range(160):
        yield b"1," * (32 << 10)
    yield b"1]}"


_BODIES = (
    b'{"prompt": [' + b"1," * ((BODY_BYTES - 64) // 2) + b"1]}",
    b'{"prompt": ' + b"[" * (BODY_BYTES - 64),
    b'{"prompt": ["' + b"a" * (BODY_BYTES - 64) + b'"], "prompt_": 1}',
    None,
)
"""Too many ids for the model, nested without end, an unknown field beside a long text; None: in chunks, too long."""


def _code_of(url: str, body: bytes | None) -> int:
    return _ask(url, _chunks_of_ten_megabytes() if body is None else body).status_code


def _ask(url: str, body: bytes | Iterator[bytes]) -> httpx.Response:
    headers = {"Content-Type": "application/json"}
    return httpx.post(f"{url}/v1/completions", content=body, headers=headers, timeout=TIMEOUT_S, trust_env=False)


def _bytes_of(status: Path, field: str) -> int:
    (line,) = [line for line in status.read_text().splitlines() if line.startswith(f"{field}:")]
    return int(line.split()[1]) << 10
