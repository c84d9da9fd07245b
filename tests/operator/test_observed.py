"""Views of API objects: what is read, and what is not taken for granted."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from drillcore_operator.errors import Unreadable
from drillcore_operator.observed import ChildJob, ClusterEvent, Pod, is_made_by
from drillcore_operator.observed.fields import format_time, parse_indexes, parse_time
from drillcore_operator.plan import Resource

CREATED = "2026-01-01T12:00:00Z"


def extraction_job(status: dict[str, Any]) -> dict[str, Any]:
    metadata = {
        "name": "job",
        "namespace": "default",
        "uid": "u",
        "generation": 1,
        "creationTimestamp": CREATED,
    }
    return {"metadata": metadata, "spec": {}, "status": status}


@pytest.mark.parametrize(
    ("text", "indexes"),
    [("", []), (None, []), ("3", [3]), ("0-2,5", [0, 1, 2, 5]), ("1,3-4,9", [1, 3, 4, 9])],
)
def test_indexes_are_read_as_kubernetes_writes_them(text: str | None, indexes: list[int]) -> None:
    assert parse_indexes(text) == frozenset(indexes)


def test_times_are_read_with_fractions_and_written_without() -> None:
    time = parse_time("2026-01-01T12:00:00.123456Z")
    assert time is not None
    assert format_time(time) == CREATED


def test_new_job_without_a_status_wants_all_its_pods() -> None:
    metadata = {"name": "j", "uid": "u", "ownerReferences": [{"uid": "x"}, {"uid": "o", "controller": True}]}
    child = ChildJob.from_api({"metadata": metadata, "spec": {"completions": 3, "parallelism": 2}})
    assert (child.owner_uid, child.num_wanted_pods, child.is_finished) == ("o", 2, False)


@pytest.mark.parametrize(
    ("spec", "status", "wanted"),
    [
        ({"suspend": True}, {}, 0),
        ({}, {"completedIndexes": "0-1"}, 1),
        ({}, {"completedIndexes": "0", "failedIndexes": "1-2"}, 0),
        ({}, {"conditions": [{"type": "Failed", "status": "True"}]}, 0),
        ({}, {"conditions": [{"type": "Failed", "status": "False"}]}, 2),
    ],
)
def test_wanted_pods(spec: dict[str, Any], status: dict[str, Any], wanted: int) -> None:
    job = {"metadata": {"name": "j", "uid": "u"}, "spec": {"completions": 3, "parallelism": 2} | spec}
    assert ChildJob.from_api(job | {"status": status}).num_wanted_pods == wanted


def test_last_word_of_a_cut_off_node_does_not_make_a_pod_ready() -> None:
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    annotations = {"batch.kubernetes.io/job-completion-index": "0"}
    metadata = {"name": "p", "creationTimestamp": CREATED, "annotations": annotations}
    pod = {"metadata": metadata, "spec": {}, "status": ready}
    assert Pod.from_api(pod).is_ready
    assert not Pod.from_api(pod | {"metadata": metadata | {"deletionTimestamp": CREATED}}).is_ready


@pytest.mark.parametrize(
    "fields",
    [
        {"lastTimestamp": CREATED},
        {"lastTimestamp": None, "eventTime": CREATED},
        {"series": {"lastObservedTime": CREATED}},
        {"metadata": {"creationTimestamp": CREATED}},
    ],
)
def test_time_of_an_event_stands_in_one_of_four_places(fields: dict[str, Any]) -> None:
    event = {"metadata": {}, "involvedObject": {"kind": "Pod", "name": "p"}, "reason": "R"} | fields
    assert ClusterEvent.from_api(event).time == datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_status_of_a_later_version_is_not_taken_for_empty() -> None:
    with pytest.raises(Unreadable, match="default/job"):
        Resource.from_api(extraction_job({"phase": "Ascended"}))


@pytest.mark.parametrize(
    "change",
    [
        {"ownerReferences": []},
        {"ownerReferences": [{"uid": "job-uid"}]},
        {"ownerReferences": [{"uid": "other", "controller": True}]},
        {"annotations": {}},
        {"annotations": None},
        {"annotations": {"batch.kubernetes.io/job-completion-index": "one"}},
    ],
    ids=str,
)
def test_a_pod_that_only_wears_the_jobs_labels_is_nobodys_shard(change: dict[str, Any]) -> None:
    annotations = {"batch.kubernetes.io/job-completion-index": "1"}
    metadata = {"ownerReferences": [{"uid": "job-uid", "controller": True}], "annotations": annotations}
    assert is_made_by("job-uid", {"metadata": metadata})
    assert not is_made_by("job-uid", {"metadata": metadata | change})
