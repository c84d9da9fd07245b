"""Which events of our resource ask for a look."""

from __future__ import annotations

from typing import Any

import pytest

from drillcore_operator.handlers import is_own_echo


def event(type_: str | None, observed: int | None, **metadata: Any) -> dict[str, Any]:
    status = {} if observed is None else {"observedGeneration": observed}
    return {"type": type_, "object": {"metadata": {"generation": 2} | metadata, "status": status}}


def test_status_of_the_present_generation_is_our_own_echo() -> None:
    assert is_own_echo(event("MODIFIED", 2))


@pytest.mark.parametrize(
    "news",
    [
        event("MODIFIED", 1),
        event("MODIFIED", None),
        event("MODIFIED", 2, deletionTimestamp="now"),
        event(None, 2),
        event("ADDED", 2),
        event("DELETED", 2),
    ],
)
def test_everything_else_is_news(news: dict[str, Any]) -> None:
    assert not is_own_echo(news)
