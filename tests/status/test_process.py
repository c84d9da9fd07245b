"""Probes, metrics, log-in, and what holds for every answer."""

from __future__ import annotations

from dataclasses import replace

import httpx
import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.parser import text_string_to_metric_families

from drillcore_status.middleware import CONTENT_SECURITY_POLICY
from drillcore_status.views import Login, LoginKind


def test_probes_say_ok_when_nobody_objects(anybody):
    assert anybody.get("/healthz").text == "ok"
    assert anybody.get("/readyz").text == "ok"


def test_a_probe_says_what_is_wrong(serve, services):
    async def stale() -> str:
        return "no list of jobs for 900 s"

    url = serve(replace(services, live_check=stale))
    answer = httpx.get(f"{url}/healthz", timeout=60, trust_env=False)
    assert answer.status_code == 503
    assert answer.json()["message"] == "no list of jobs for 900 s"
    assert httpx.get(f"{url}/readyz", timeout=60, trust_env=False).status_code == 200


def test_metrics_count_answers_by_route_and_never_hold_what_was_typed(client, jobs):
    jobs.put("secret-project")
    client.get("/v1/namespaces/team-a/extractionjobs/secret-project")
    client.get("/secret-path")
    client.request("SECRETVERB", "/healthz")
    text = client.get("/metrics").text
    samples = {
        (s.labels["method"], s.labels["route"], s.labels["code"]): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
        if s.name == "drillcore_http_requests_total"
    }
    assert samples["GET", "/v1/namespaces/{namespace}/extractionjobs/{name}", "200"] == 1
    assert samples["GET", "none", "404"] == 1
    assert "secret" not in text.lower()


def test_metrics_of_the_process_stand_beside(serve, services):
    registry = CollectorRegistry()
    Gauge("drillcore_work_queue_length", "Keys that wait.", registry=registry).set(7)
    text = httpx.get(serve(replace(services, registry=registry)) + "/metrics", timeout=60, trust_env=False).text
    assert "drillcore_work_queue_length 7.0" in text


def test_the_page_learns_how_to_log_in(serve, services):
    login = Login(kind=LoginKind.NONE, namespace="here")
    answer = httpx.get(serve(replace(services, login=login)) + "/v1/login", timeout=60, trust_env=False)
    assert answer.json() == {"kind": "None", "namespace": "here"}


@pytest.mark.parametrize("path", ["/", "/docs", "/metrics", "/nothing", "/v1/namespaces/team-a/extractionjobs"])
def test_every_answer_forbids_everything_from_elsewhere(anybody, jobs, path):
    jobs.problem = RuntimeError("even a defect")
    headers = anybody.get(path, headers={"Authorization": "Bearer reader-of-team-a"}).headers
    assert headers["Content-Security-Policy"] == CONTENT_SECURITY_POLICY
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] in ("no-store", "no-cache")
    assert "server" not in headers


def test_the_policy_allows_nothing_inline_and_nothing_foreign():
    assert "default-src 'none'" in CONTENT_SECURITY_POLICY
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert "http" not in CONTENT_SECURITY_POLICY
    assert "require-trusted-types-for 'script'" in CONTENT_SECURITY_POLICY


@pytest.mark.parametrize(("host", "code"), [("127.0.0.1:1", 200), ("localhost", 200), ("evil.example", 400), ("", 400)])
def test_a_server_that_trusts_everybody_answers_to_its_own_names_only(serve, open_services, host, code):
    url = serve(replace(open_services, allowed_hosts=frozenset({"127.0.0.1", "localhost", "::1"})))
    assert httpx.get(f"{url}/healthz", headers={"Host": host}, timeout=60, trust_env=False).status_code == code
