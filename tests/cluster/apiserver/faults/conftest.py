"""Operators of one namespace behind a proxy that makes their calls fail; pods there run and end by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from drillcore_spec.messages import Counts, TerminationMessage
from drillcore_spec.reasons import Reason
from drillcore_testcluster.fault_proxy import FaultProxy
from drillcore_testcluster.field import Field
from drillcore_testcluster.kube_api import KubeApi, Object
from drillcore_testcluster.operator_account import SuiteAccounts
from drillcore_testcluster.operator_process import operator_process
from drillcore_testcluster.played_kubelet import PlayedKubelet
from drillcore_testcluster.processes import Process


@pytest.fixture
def proxy(accounts: SuiteAccounts, namespace: str) -> Iterator[FaultProxy]:
    with FaultProxy(accounts.namespaced(namespace)).running() as proxy:
        yield proxy


@pytest.fixture
def field(api: KubeApi, kubelet: PlayedKubelet, crd: object, namespace: str) -> Iterator[Field]:
    """Without the shared operator."""
    field = Field(api, kubelet, namespace)
    field.claims()
    kubelet.scripts[namespace] = _end_by_job_name
    yield field
    kubelet.scripts.pop(namespace, None)


@pytest.fixture
def operator(proxy: FaultProxy, namespace: str, tmp_path: Path) -> Callable[..., AbstractContextManager[Process]]:
    """`with operator(...) as process`: an operator of this namespace only, behind the proxy."""

    @contextmanager
    def start(**settings: str) -> Iterator[Process]:
        kubeconfig = proxy.write_kubeconfig(tmp_path / "kubeconfig")
        process = operator_process(
            tmp_path, kubeconfig, **{"namespaces": namespace, "resync_interval_s": "30"} | settings
        )
        process.start()
        try:
            yield process
        finally:
            process.stop(kill=True)
            print(process.log_tail())  # shown by pytest when the test fails

    return start


def _end_by_job_name(pod: Object) -> tuple[str, dict[str, str | int]]:
    if pod["metadata"]["labels"]["drillcore.dev/job"].startswith("bad"):
        return "server-exit", {"exit_code": 65, "message": "no such file"}
    counts = Counts(rows_in=10, rows_out=10)
    return "succeeded", {"message": TerminationMessage(code=0, reason=Reason.COMMITTED, counts=counts).to_line()}
