"""A client that costs little: bodies made beforehand, one connection for each request in flight, no parsing."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

_PATH = "/v1/completions"


@dataclass(frozen=True)
class Load:
    """What one pass over all bodies took."""

    seconds: float
    latencies_s: list[float]

    def percentiles_ms(self) -> dict[str, float]:
        """p50, p95 and p99 of the time from a request's first byte to its answer's last."""
        values = np.percentile(np.array(self.latencies_s) * 1000, (50, 95, 99))
        return {name: round(float(value), 2) for name, value in zip(("p50", "p95", "p99"), values, strict=True)}


def bodies_of(prompts: Iterable[Iterable[int]], max_tokens: int, model: str) -> list[bytes]:
    """Requests as speculators' client sends them."""
    fields = {"model": model, "max_tokens": max_tokens, "return_token_ids": True}
    return [json.dumps({**fields, "prompt": list(map(int, prompt))}).encode() for prompt in prompts]


def run_load(url: str, bodies: list[bytes], in_flight: int, take: Callable[[bytes], None]) -> Load:
    """Sends every body, at most `in_flight` at a time; `take` gets each answer's body."""
    return asyncio.run(_run(url, bodies, in_flight, take))


def remove_files(answer: bytes) -> None:
    """What speculators' trainer does once it has read the file."""
    for choice in json.loads(answer)["choices"]:
        Path(choice["kv_transfer_params"]["hidden_states_path"]).unlink()


async def _run(url: str, bodies: list[bytes], in_flight: int, take: Callable[[bytes], None]) -> Load:
    address = urlsplit(url)
    rest, latencies = iter(bodies), []

    async def worker() -> None:
        reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=1 << 24)
        for body in rest:
            head = f"POST {_PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            began = time.perf_counter()
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = await _read(reader)
            latencies.append(time.perf_counter() - began)
            take(answer)
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(min(in_flight, len(bodies)))))
    return Load(time.perf_counter() - began, latencies)


async def _read(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    length = next(int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length:"))
    body = await reader.readexactly(length)
    if " 200 " not in lines[0]:
        raise RuntimeError(f"{lines[0]}: {body.decode()}")
    return body
