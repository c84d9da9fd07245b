"""A response never arrives before its file can be opened and verified."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import numpy as np
import pytest
import xxhash
from safetensors import safe_open

TIMEOUT_S = 600


def verify(path: Path, ids: list[int]) -> None:
    """Opens and reads the whole file: its tokens, its shape, and the checksum in its header."""
    content = path.read_bytes()
    header_bytes = 8 + int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8:header_bytes])["__metadata__"]
    assert xxhash.xxh3_64(content[header_bytes:]).hexdigest() == metadata["xxh3_64"]
    with safe_open(path, "numpy") as file:
        assert file.get_tensor("token_ids").tolist() == ids
        states = file.get_tensor("hidden_states")
    assert states.shape == (len(ids), 3, 64)
    assert np.isfinite(states).all()


async def read_at_once(url: str, storage: Path, num_requests: int, concurrency: int) -> None:
    """Each answer's file is verified the moment that it is known, then moved away."""
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, 256, int(rng.integers(1, 40))).tolist() for _ in range(num_requests)]
    places = asyncio.Semaphore(concurrency)
    limits = httpx.Limits(max_connections=concurrency)
    async with httpx.AsyncClient(limits=limits, timeout=TIMEOUT_S, trust_env=False) as client:

        async def ask(ids: list[int]) -> None:
            async with places:
                answer = await client.post(f"{url}/v1/completions", json={"prompt": ids, "max_tokens": 1})
                path = Path(answer.json()["kv_transfer_params"]["hidden_states_path"])
                verify(path, ids)
                path.unlink()

        async with asyncio.TaskGroup() as group:
            for ids in prompts:
                group.create_task(ask(ids))
    assert [path for path in storage.iterdir() if path.name != ".serve"] == []


def test_three_hundred_files_are_whole_when_their_answers_come(serve):
    server = serve()
    asyncio.run(read_at_once(server.url, server.storage, num_requests=300, concurrency=64))
    server.assert_whole()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_ten_thousand_files_are_whole_when_their_answers_come(serve):
    server = serve()
    asyncio.run(read_at_once(server.url, server.storage, num_requests=10_000, concurrency=256))
    server.assert_whole()
