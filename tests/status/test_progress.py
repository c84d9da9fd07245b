"""Progress reports of pods."""

from __future__ import annotations

import httpx
import pytest

PROGRESS = "/v1/namespaces/team-a/extractionjobs/a-job/progress"
REPORT = {
    "shard": 0,
    "attempt": "5f2c9a10",
    "seq": 1,
    "rowsTotal": 10,
    "rowsDone": 4,
    "rowsQuarantined": 1,
    "tokens": 400,
    "bytes": 9000,
    "state": "Running",
}
POD = {"Authorization": "Bearer pod-of-shard-0"}


def test_a_report_of_a_pod_is_taken_with_the_pods_name(anybody, jobs):
    answer = anybody.post(PROGRESS, json=REPORT, headers=POD)
    assert answer.status_code == 202
    ((pod, report),) = jobs.reports
    assert pod.name == "a-job-00000000-0-abcde"
    assert (report.rows_done, report.attempt) == (4, "5f2c9a10")


def test_a_newer_sidecar_may_say_more(anybody, jobs):
    assert anybody.post(PROGRESS, json=REPORT | {"news": 1}, headers=POD).status_code == 202
    assert len(jobs.reports) == 1


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer reader-of-team-a"}])
def test_whoever_is_no_pod_of_the_job_is_refused(anybody, jobs, headers):
    assert anybody.post(PROGRESS, json=REPORT, headers=headers).status_code == 401
    assert jobs.reports == []


def test_a_token_is_judged_before_the_report(anybody):
    assert anybody.post(PROGRESS, json={"shard": "<script>"}).status_code == 422
    assert anybody.post(PROGRESS, json=REPORT).status_code == 401


@pytest.mark.parametrize(
    "wrong", [{"shard": -1}, {"attempt": "<script>"}, {"rowsDone": "4"}, {"state": "Odd"}, {"tokens": 2**63}]
)
def test_a_wrong_report_is_refused_by_field_and_not_repeated(anybody, jobs, wrong):
    answer = anybody.post(PROGRESS, json=REPORT | wrong, headers=POD)
    assert answer.status_code == 422
    assert answer.json()["reason"] == "Invalid"
    assert next(iter(wrong)) in answer.json()["details"]["causes"][0]["field"]
    assert "<script>" not in answer.text
    assert jobs.reports == []


def test_what_is_no_json_is_refused(anybody):
    headers = POD | {"Content-Type": "application/json"}
    assert anybody.post(PROGRESS, content=b"{", headers=headers).status_code == 422


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_without_end_is_cut(anybody, jobs, declared):
    chunks = (b" " * 8192 for _ in range(16))
    content = b"".join(chunks) if declared else chunks
    answer = anybody.post(PROGRESS, content=content, headers=POD | {"Content-Type": "application/json"})
    assert answer.status_code == 413
    assert answer.json()["reason"] == "RequestEntityTooLarge"
    assert jobs.reports == []


def test_a_server_without_pods_takes_no_reports(serve, open_services):
    answer = httpx.post(serve(open_services) + PROGRESS, json=REPORT, timeout=60, trust_env=False)
    assert answer.status_code == 404
