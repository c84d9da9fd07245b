"""The job-status API with real tokens: TokenRequest, TokenReview and SubjectAccessReview of a real API server."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from drillcore_spec import names
from drillcore_testcluster.control_plane import ControlPlane
from drillcore_testcluster.field import Field
from drillcore_testcluster.job_under_test import JobUnderTest
from drillcore_testcluster.kube_api import KubeApi, Object
from drillcore_testcluster.operator_account import SuiteAccounts
from drillcore_testcluster.operator_process import operator_process
from drillcore_testcluster.ports import LOOPBACK, free_ports
from drillcore_testcluster.waiting import until

pytestmark = pytest.mark.apiserver

REPORT: dict[str, Any] = {
    "shard": 0,
    "attempt": "5f2c9a10",
    "seq": 1,
    "rowsTotal": 100,
    "rowsDone": 42,
    "rowsQuarantined": 2,
    "tokens": 4200,
    "bytes": 123456,
    "state": "Running",
}


@dataclass(frozen=True)
class Api:
    """The status API as pods reach it: by name, over TLS."""

    url: str
    tls: ssl.SSLContext

    def request(self, method: str, path: str, token: str | None = None, **options: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        client = httpx.Client(verify=self.tls, timeout=20, trust_env=False)
        with client:
            return client.request(method, self.url + path, headers=headers, **options)


@pytest.fixture(scope="module")
def status_api(own_control_plane: ControlPlane, crd: object, accounts: SuiteAccounts) -> Iterator[Api]:
    """The API of an operator that runs beside the other: neither harms the other."""
    (port,) = free_ports(1)
    folder = own_control_plane.folder / "status-operator"
    folder.mkdir()
    authority = own_control_plane.authority
    serving = authority.server("status-api", ["localhost"], [LOOPBACK])
    process = operator_process(
        folder,
        accounts.cluster_wide,
        api_port=str(port),
        advertise_url=f"https://localhost:{port}",
        api_certificate_file=str(serving.certificate),
        api_key_file=str(serving.key),
        api_ca_file=str(authority.root.certificate),
    )
    process.start()
    served = Api(f"https://localhost:{port}", ssl.create_default_context(cafile=authority.root.certificate))
    until(lambda: _is_ready(served), "the operator is ready")
    yield served
    process.check()
    process.stop()
    shutil.rmtree(folder)


@pytest.fixture
def job(field: Field) -> JobUnderTest:
    field.claims()
    return field.running_job("job")


@pytest.fixture
def pod_token(api: KubeApi, field: Field, job: JobUnderTest) -> Callable[..., str]:
    """The token that kubelet would mount into the job's first pod."""

    def make(pod: Object | None = None, job_name: str = "job") -> str:
        pod = pod or field.pod(job)
        audience = names.token_audience(field.namespace, job_name)
        return api.create_token(field.namespace, "default", audience=audience, pod=pod)

    return make


def test_a_reader_sees_the_job_as_kubectl_does(status_api, job, token_for):
    answer = _get(status_api, job, token_for("reader", reads=True))
    assert answer.status_code == 200
    assert answer.json()["metadata"]["uid"] == job.resource()["metadata"]["uid"]
    assert answer.json()["status"]["phase"] == "Running"


@pytest.mark.parametrize("suffix", ["", "/shards", "/events", "/throughput", "/stream"])
def test_who_has_no_right_learns_nothing_about_the_job(status_api, job, token_for, suffix):
    stranger = token_for("stranger")
    wrong_audience = token_for("elsewhere", reads=True, audience="https://elsewhere.example")
    other = JobUnderTest(job.api, job.namespace, "none")
    for token, code in ((stranger, 403), (wrong_audience, 401), ("garbage", 401), (None, 401)):
        there, none = _get(status_api, job, token, suffix), _get(status_api, other, token, suffix)
        assert (there.status_code, there.json()) == (code, none.json()), token


def test_a_report_of_the_jobs_pod_reaches_the_status(status_api, job, token_for, pod_token):
    assert _post(status_api, job, pod_token()).status_code == 202
    progress = _get(status_api, job, token_for("reader", reads=True)).json()["status"]["progress"]
    assert (progress["rowsDone"], progress["rowsQuarantined"], progress["bytes"]) == (42, 2, 123456)
    until(lambda: job.status().get("progress", {}).get("rowsDone") == 42, "the stored status has the rows")


def test_no_other_token_may_report(status_api, field, job, token_for, pod_token):
    other = field.running_job("other")
    foreign_pod = pod_token(field.pod(other))
    audience = names.token_audience(field.namespace, "job")
    refused = {
        "none": (None, 401),
        "garbage": ("garbage", 401),
        "a reader's": (token_for("reader", reads=True), 401),
        "for another job": (pod_token(job_name="other"), 401),
        "of no pod": (token_for("podless", audience=audience), 403),
        "of another job's pod": (foreign_pod, 403),
    }
    for what, (token, code) in refused.items():
        assert _post(status_api, job, token).status_code == code, what
    assert _post(status_api, job, pod_token(), shard=1).status_code == 403
    assert job.status().get("progress", {}).get("rowsDone", 0) == 0


def test_a_deleted_pods_token_is_not_good_any_more(status_api, api, field, job, pod_token):
    token = pod_token()
    pod = field.pod(job)
    api.delete("Pod", pod["metadata"]["name"], namespace=field.namespace, gracePeriodSeconds="0")
    until(lambda: api.find("Pod", pod["metadata"]["name"], namespace=field.namespace) is None, "the pod is gone")
    assert _post(status_api, job, token).status_code == 401


def test_a_bearer_of_a_deleted_right_is_shut_out_within_a_minute(status_api, api, job, namespace, token_for):
    token = token_for("reader", reads=True)
    assert _get(status_api, job, token).status_code == 200
    api.delete("RoleBinding", "reader", namespace=namespace)
    until(lambda: _get(status_api, job, token).status_code == 403, "the right is gone")


def _get(status_api: Api, job: JobUnderTest, token: str | None, suffix: str = "") -> httpx.Response:
    return status_api.request("GET", names.job_path(job.namespace, job.name) + suffix, token)


def _post(status_api: Api, job: JobUnderTest, token: str | None, **changes: Any) -> httpx.Response:
    return status_api.request("POST", names.progress_path(job.namespace, job.name), token, json=REPORT | changes)


def _is_ready(status_api: Api) -> bool:
    try:
        return status_api.request("GET", "/readyz").is_success
    except httpx.TransportError:
        return False
