"""The test cluster itself: what it starts, and that nothing of it stays behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from drillcore_testcluster.control_plane import ControlPlane
from drillcore_testcluster.kube_api import KubeApi
from drillcore_testcluster.kubectl import Kubectl
from drillcore_testcluster.processes import Process, new_run_folder, sweep


@pytest.mark.apiserver
def test_server_and_kubectl_report_their_version(kubectl: Kubectl) -> None:
    versions = json.loads(kubectl("version", "--output=json"))
    assert versions["serverVersion"]["gitVersion"].startswith("v1.")
    assert versions["serverVersion"]["minor"] == versions["clientVersion"]["minor"]


@pytest.mark.apiserver
def test_audit_log_names_user_and_verb(own_control_plane: ControlPlane, namespace: str) -> None:
    own_control_plane.api.list("Pod", namespace=namespace)
    entries = [json.loads(line) for line in own_control_plane.audit_log.read_text().splitlines()]
    mine = [e for e in entries if e.get("objectRef", {}).get("namespace") == namespace and e["verb"] == "list"]
    assert mine[-1]["user"]["username"] == "drillcore-test-admin"


@pytest.mark.apiserver
def test_job_controller_creates_pods_and_the_scheduler_says_why_they_wait(api: KubeApi, namespace: str) -> None:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}
    template = {"spec": pod | {"nodeSelector": {"no": "such-node"}}}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "waits", "namespace": namespace},
        "spec": {"template": template},
    }
    api.create(job)
    for event in api.watch("Pod", namespace=namespace, labelSelector="job-name=waits", timeout_s=20):
        conditions = event["object"].get("status", {}).get("conditions", [])
        if any(c["type"] == "PodScheduled" and c["reason"] == "Unschedulable" for c in conditions):
            return
    pytest.fail("the pod never got a PodScheduled condition")


@pytest.fixture
def own_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A place for run folders of this test alone: other sessions sweep the common one."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.mark.usefixtures("own_runs")
def test_sweep_ends_what_a_killed_session_left() -> None:
    script = (
        "import sys, time; from pathlib import Path\n"
        "from drillcore_testcluster.processes import Process, new_run_folder\n"
        "folder = new_run_folder()\n"
        "process = Process('sleeper', 'sleep', ['600'], folder); process.start()\n"
        "print(process.pid, folder, flush=True); time.sleep(600)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    session = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment)
    assert session.stdout is not None
    with session.stdout as stdout:
        pid, folder = stdout.readline().decode().split()
    sleeper = psutil.Process(int(pid))
    session.kill()
    session.wait()
    assert sleeper.is_running()
    assert folder in map(str, sweep())
    assert not psutil.pid_exists(sleeper.pid) or sleeper.status() == psutil.STATUS_ZOMBIE
    assert not os.path.exists(folder)


@pytest.mark.usefixtures("own_runs")
def test_sweep_leaves_a_living_session_alone() -> None:
    folder = new_run_folder()
    process = Process("sleeper", "sleep", ["600"], folder)
    process.start()
    try:
        assert folder not in sweep()
        process.check()
    finally:
        process.stop()
    (folder / "owner.pid").write_text(json.dumps({"pid": os.getpid(), "started": time.time() + 100}))
    assert folder in sweep(), "a process id that was given to somebody else is not the owner"
