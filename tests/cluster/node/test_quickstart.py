"""The quickstart on a real node: three shards, and everything a user sees of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import drillcore
from drillcore_testcluster.job_under_test import JobUnderTest
from drillcore_testcluster.manifests import extraction_job
from drillcore_testcluster.node.release import Release
from drillcore_testcluster.node.status_page import StatusPage, status_page
from drillcore_testcluster.node.team import QUICKSTART, Team
from drillcore_testcluster.processes import Process

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

NAME = "quickstart"
NUM_SHARDS = 3
REPOSITORY = Path(__file__).resolve().parents[3]
CHANGES = QUICKSTART | {"output.subPath": NAME, "shards.count": NUM_SHARDS, "parallelism": 2}
JOB_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Finished:
    """The job after its success, and what was seen on the way."""

    job: JobUnderTest
    watched: str
    """Output of `kubectl get exj --watch`."""
    streamed: list[tuple[str, dict[str, Any]]]
    page: StatusPage


@pytest.fixture(scope="module")
def page(team: Team) -> Iterator[StatusPage]:
    with status_page(team.cluster, team.namespace) as page:
        yield page


@pytest.fixture(scope="module")
def finished(team: Team, page: StatusPage) -> Finished:
    kubectl = team.cluster.kubectl
    manifest = extraction_job(NAME, team.namespace, CHANGES)
    arguments = [f"--kubeconfig={kubectl.kubeconfig}", "--namespace", team.namespace, "get", "exj", "--watch"]
    watch = Process("kubectl-watch", kubectl.binary, arguments, team.cluster.folder)
    watch.start()
    try:
        kubectl("apply", "--filename", "-", stdin=json.dumps(manifest))
        job = JobUnderTest(team.cluster.api, team.namespace, NAME)
        streamed = list(_until_over(page))
        job.wait("Succeeded", "True", "Succeeded", JOB_TIMEOUT_S)
    finally:
        watch.stop()
    return Finished(job, watch.log_path.read_text(), streamed, page)


def _until_over(page: StatusPage) -> Iterator[tuple[str, dict[str, Any]]]:
    for kind, data in page.stream(NAME):
        yield kind, data
        if kind == "job" and data["status"].get("phase") in ("Succeeded", "Failed"):
            return


@pytest.fixture(scope="module")
def output(finished: Finished, team: Team, tmp_path_factory: pytest.TempPathFactory) -> drillcore.Output:
    return drillcore.open(team.toolbox.receive("states", NAME, tmp_path_factory.mktemp("volume")))


@pytest.fixture(scope="module")
def local_output(tmp_path_factory: pytest.TempPathFactory) -> drillcore.Output:
    """The same spec, run on this machine by `drillcore run`."""
    folder = tmp_path_factory.mktemp("local")
    job = folder / "job.json"
    job.write_text(json.dumps(extraction_job(NAME, "default", CHANGES)))
    command = [Path(sys.executable).with_name("drillcore"), "run", job, "--output", folder / NAME]
    subprocess.run(command, cwd=REPOSITORY, check=True, timeout=JOB_TIMEOUT_S)
    return drillcore.open(folder / NAME)


def test_the_job_succeeds_and_its_output_is_verified(finished: Finished) -> None:
    assert finished.job.condition("OutputVerified")["reason"] == "Verified"
    status = finished.job.status()
    assert status["phase"] == "Succeeded"
    assert status["progress"]["rowsDone"] == status["progress"]["rowsTotal"] == 72
    assert status["shards"]["succeeded"] == NUM_SHARDS


def test_token_ids_equal_the_local_run_byte_for_byte(output: drillcore.Output, local_output: drillcore.Output) -> None:
    np.testing.assert_array_equal(output.rows, local_output.rows)
    for got, expected in zip(output, local_output, strict=True):
        assert got.id == expected.id
        assert got.token_ids.tobytes() == expected.token_ids.tobytes()


def test_states_equal_the_local_run_row_by_row(
    output: drillcore.Output, local_output: drillcore.Output, row_criterion: Callable[..., None]
) -> None:
    for got, expected in zip(output, local_output, strict=True):
        row_criterion(got.hidden_states, expected.hidden_states, 5e-3)


def test_another_pod_verifies_the_output(finished: Finished, team: Team) -> None:
    assert "3 of 3 shards committed, 72 rows in, 72 out" in team.verify(NAME)


def test_progress_moves_in_the_printed_columns(finished: Finished) -> None:
    # The watch prints the jobs of other tests in the namespace, too.
    lines = [line for line in finished.watched.splitlines() if line.split()[:1] == [NAME]]
    percentages = [int(found) for line in lines for found in re.findall(r"(\d+)%", line)]
    assert percentages == sorted(percentages)
    assert len(set(percentages)) > 2, finished.watched
    assert percentages[-1] == 100


def test_page_and_stream_show_what_the_cluster_says(finished: Finished) -> None:
    assert "<title>" in finished.page.html()
    shown = finished.page.job(NAME)["status"]
    status = finished.job.status()
    assert shown["phase"] == status["phase"]
    assert shown["conditions"] == status["conditions"]
    assert shown["progress"] == status["progress"]
    phases = [data["status"].get("phase") for kind, data in finished.streamed if kind == "job"]
    assert {"Running", "Succeeded"} <= set(phases)


def test_helm_test_passes(release: Release) -> None:
    release.cluster.volumes.provide("self-test", "64Mi")
    assert re.search(r"TEST SUITE: +drillcore-self-test\n(.*\n)*Phase: +Succeeded", release.test())
