"""Reading jobs, and what is answered to those who may not."""

from __future__ import annotations

import pytest

from drillcore_status.errors import Unavailable
from drillcore_status.views import JobEvent, Shard, ShardPhase, ThroughputSample

JOBS = "/v1/namespaces/team-a/extractionjobs"
SUFFIXES = ("", "/shards", "/events", "/throughput", "/stream")


def test_jobs_of_a_namespace_are_listed_by_name_and_those_of_others_are_not(client, jobs):
    jobs.put("b")
    jobs.put("a")
    jobs.put("c", namespace="team-b")
    answer = client.get(JOBS).json()
    assert answer["kind"] == "ExtractionJobList"
    assert [job["metadata"]["name"] for job in answer["items"]] == ["a", "b"]


def test_a_job_has_the_shape_that_kubectl_prints(client, jobs):
    jobs.put(status={"phase": "Running", "progress": {"rowsDone": 3, "percentage": 30, "summary": "30%"}})
    job = client.get(f"{JOBS}/a-job").json()
    assert (job["apiVersion"], job["kind"]) == ("drillcore.dev/v1alpha1", "ExtractionJob")
    assert job["spec"]["extraction"] == {"layers": [1]}
    assert job["status"]["progress"]["rowsDone"] == 3


def test_shards_events_and_throughput_are_lists_of_their_own(client, jobs):
    jobs.put()
    key = ("team-a", "a-job")
    jobs.shards[key] = [Shard(index=0, phase=ShardPhase.FAILED, reason="BadDataset", message="no column text")]
    jobs.events[key] = [JobEvent(reason="Started", message="go", first_time="x", last_time="y")]
    jobs.samples[key] = [ThroughputSample(time_seconds=1.0, rows_done=2, tokens=3, bytes=4)]
    assert client.get(f"{JOBS}/a-job/shards").json()["items"][0]["reason"] == "BadDataset"
    assert client.get(f"{JOBS}/a-job/events").json()["items"][0]["firstTime"] == "x"
    assert client.get(f"{JOBS}/a-job/throughput").json()["items"][0]["timeSeconds"] == 1.0


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_job_that_is_not_there_is_a_kubernetes_status(client, suffix):
    answer = client.get(f"{JOBS}/none{suffix}")
    status = answer.json()
    assert answer.status_code == 404
    assert (status["kind"], status["apiVersion"], status["status"]) == ("Status", "v1", "Failure")
    assert (status["reason"], status["code"]) == ("NotFound", 404)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_who_has_no_token_learns_nothing(anybody, jobs, suffix):
    jobs.put("there")
    answers = [anybody.get(f"{JOBS}/{name}{suffix}") for name in ("there", "none")]
    assert [answer.status_code for answer in answers] == [401, 401]
    assert answers[0].content == answers[1].content
    assert answers[0].headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_who_may_not_read_a_namespace_does_not_learn_what_is_in_it(client, jobs, suffix):
    jobs.put("there", namespace="team-b")
    answers = [client.get(f"/v1/namespaces/team-b/extractionjobs/{name}{suffix}") for name in ("there", "none")]
    assert [answer.status_code for answer in answers] == [403, 403]
    assert answers[0].json() == answers[1].json()


@pytest.mark.parametrize("scheme", ["Basic", "Token", ""])
def test_only_bearer_tokens_count(anybody, jobs, scheme):
    jobs.put()
    headers = {"Authorization": f"{scheme} reader-of-team-a".strip()}
    assert anybody.get(JOBS, headers=headers).status_code == 401


@pytest.mark.parametrize("name", ["..", "%2e%2e", "A-Job", "a_job", "x" * 64, "a.b", "a%0a"])
def test_a_name_that_no_job_can_have_never_reaches_the_source(client, jobs, name):
    jobs.problem = AssertionError("the source was asked")
    assert client.get(f"{JOBS}/{name}").status_code in (404, 422)
    assert client.get(f"/v1/namespaces/{name}/extractionjobs/a-job").status_code in (404, 422)


def test_a_cluster_that_cannot_be_asked_is_503_with_what_to_do(client, tokens):
    tokens.problem = Unavailable("install the chart with auth.delegator.create=true", retry_after_s=30)
    answer = client.get(JOBS)
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "30"
    assert answer.json()["details"] == {"causes": [], "retryAfterSeconds": 30}
    assert "auth.delegator.create" in answer.json()["message"]


def test_a_defect_of_ours_tells_the_log_and_not_the_caller(client, jobs, caplog):
    jobs.problem = RuntimeError("secret detail")
    answer = client.get(JOBS)
    assert answer.status_code == 500
    assert answer.json()["reason"] == "InternalError"
    assert "secret detail" not in answer.text
    assert "secret detail" in caplog.text


def test_an_unknown_path_and_a_wrong_method_are_statuses_too(client):
    assert client.get("/v1/nothing").json()["reason"] == "NotFound"
    assert client.delete(JOBS).json()["reason"] == "MethodNotAllowed"
