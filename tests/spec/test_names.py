"""Names that fit where Kubernetes puts them."""

from __future__ import annotations

import hashlib

from drillcore_spec import names


def test_the_child_is_named_after_the_job_and_its_uid() -> None:
    uid = "54f9dc18-7b12-42e3-bff6-2c9373fdc98f"
    assert names.child_name("demo", uid) == "demo-" + hashlib.sha256(uid.encode()).hexdigest()[:8]


def test_the_host_name_of_the_last_pod_of_the_longest_name_fits() -> None:
    child = names.child_name("a" * names.MAX_JOB_NAME_LENGTH, "uid")
    assert len(f"{child}-{9_999_999}") <= 63


def test_tokens_and_paths_name_one_job() -> None:
    assert names.token_audience("ns", "demo") == "drillcore.dev/ns/demo"
    assert names.progress_path("ns", "demo") == "/v1/namespaces/ns/extractionjobs/demo/progress"
