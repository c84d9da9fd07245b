"""`drillcore run --status-port`: the run as a page."""

from __future__ import annotations

import json

import httpx
import pytest

pytestmark = pytest.mark.e2e


def test_the_run_is_seen_from_its_start_to_its_end(workplace):
    process = workplace.start("run", "job.yaml", "--status-port", "0")
    line = next(line for line in process.stderr if "status page" in line)
    address = line.split()[-1]
    assert "<title>drillcore</title>" in httpx.get(address, trust_env=False).text
    (job,) = httpx.get(f"{address}v1/namespaces/default/extractionjobs", trust_env=False).json()["items"]
    statuses = []
    path = f"v1/namespaces/default/extractionjobs/{job['metadata']['name']}/stream"
    with httpx.stream("GET", address + path, timeout=120, trust_env=False) as response:
        kind = ""
        for text in response.iter_lines():
            kind = text.removeprefix("event: ") if text.startswith("event: ") else kind
            if kind == "job" and text.startswith("data: "):
                statuses.append(json.loads(text.removeprefix("data: "))["status"])
    process.communicate(timeout=120)
    assert process.returncode == 0
    assert statuses[0]["phase"] == "Running"
    assert statuses[-1]["phase"] == "Succeeded"
    percentages = [status["progress"]["percentage"] for status in statuses]
    assert percentages == sorted(percentages)
    assert percentages[-1] == 100
