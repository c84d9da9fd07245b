"""The comparison of the chart's rights with those that the operator used, and where the suite's tests stand."""

from __future__ import annotations

import json
from pathlib import Path

from drillcore_testcluster.audit import calls_of, rights_used
from drillcore_testcluster.suite_rights import Comparison

TESTS = Path(__file__).parents[1]
GET_JOBS = ("batch", "jobs", "get")
LIST_PODS = ("", "pods", "list")


def test_equal_rights_differ_in_nothing():
    comparison = Comparison()
    comparison.add([GET_JOBS], [GET_JOBS, LIST_PODS], [])
    comparison.add([list(LIST_PODS)], [GET_JOBS, LIST_PODS], [])
    assert comparison.differences() == []


def test_each_difference_is_told_by_name():
    comparison = Comparison()
    comparison.add([GET_JOBS], [LIST_PODS], [GET_JOBS])
    assert comparison.differences() == [
        "get jobs (batch) was refused",
        "get jobs (batch) is used and not granted",
        "list pods (core) is granted and not used",
    ]


def test_questions_about_tokens_and_paths_that_are_no_resource_need_no_right_of_the_role(tmp_path):
    log = tmp_path / "audit.log"
    about = [
        {"apiGroup": "batch", "resource": "jobs"},
        {"apiGroup": "authentication.k8s.io", "resource": "tokenreviews"},
        None,
    ]
    entry = {"requestReceivedTimestamp": "2030-01-01T00:00:00.000000Z", "verb": "get", "user": {"username": "operator"}}
    log.write_text("\n".join(json.dumps(entry | {"objectRef": ref}) for ref in about))
    calls = calls_of(log, "operator")
    assert len(calls) == 3
    assert rights_used(calls) == {GET_JOBS}


def test_tests_on_an_api_server_stand_where_make_looks_for_them():
    marked = [
        path for path in TESTS.rglob("test_*.py") if "mark.apiserver" in path.read_text() and path != Path(__file__)
    ]
    assert marked
    assert {path.relative_to(TESTS).parts[0] for path in marked} == {"cluster", "chart"}
