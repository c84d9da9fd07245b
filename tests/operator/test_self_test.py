"""What `helm test` waits for."""

from __future__ import annotations

import asyncio
from typing import Any

from drillcore_operator.errors import Unavailable
from drillcore_operator.self_test import wait_for_end


class PlayedApi:
    """Gives one answer after another."""

    def __init__(self, *answers: Any) -> None:
        self._answers = iter(answers)

    async def get_resource(self, namespace: str, name: str) -> Any:
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


def _job(status: str, reason: str) -> dict[str, Any]:
    common = {"message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {"status": {"conditions": [{"type": "Succeeded", "status": status, "reason": reason} | common]}}


def test_it_waits_for_a_job_that_is_not_there_yet_through_outages_until_it_is_over(caplog):
    caplog.set_level("INFO")
    waiting = _job("Unknown", "Unschedulable")
    api = PlayedApi(None, Unavailable("away"), {"status": {}}, waiting, waiting, _job("True", "Succeeded"))
    end = asyncio.run(wait_for_end(api, "n", "j", poll_s=0))
    assert (end.status, end.reason) == ("True", "Succeeded")
    assert caplog.text.count("Unschedulable") == 1, "what does not change is told once"


def test_a_job_that_failed_is_over_too():
    end = asyncio.run(wait_for_end(PlayedApi(_job("False", "BadDataset")), "n", "j", poll_s=0))
    assert (end.status, end.reason) == ("False", "BadDataset")
