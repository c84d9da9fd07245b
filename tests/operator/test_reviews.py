"""What is asked about tokens leaves turns to the looks at jobs."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from drillcore_operator.cluster import Reviews
from drillcore_operator.cluster.connection import Connection

PER_SECOND = 100.0


class CountingConnection:
    def __init__(self) -> None:
        self.num_requests = 0

    async def request(self, method: str, path: str, *, body: Any) -> dict[str, Any]:
        self.num_requests += 1
        return {"status": {"authenticated": False}}


def test_a_crowd_of_tokens_takes_half_of_the_turns():
    async def run() -> tuple[int, int]:
        connection = CountingConnection()
        reviews = Reviews(cast("Connection", connection), PER_SECOND)
        crowd = asyncio.gather(*(reviews.user_of_token(f"token-{number}") for number in range(70)))
        await asyncio.sleep(0.1)
        at_first = connection.num_requests
        await crowd
        return at_first, connection.num_requests

    at_first, in_the_end = asyncio.run(run())

    # A second's unused turns may be taken at once.
    assert PER_SECOND / 2 <= at_first <= PER_SECOND / 2 + 10
    assert in_the_end == 70
