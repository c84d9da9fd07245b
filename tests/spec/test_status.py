"""The status that the operator writes."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from drillcore_spec.reasons import Reason
from drillcore_spec.status import (
    Condition,
    ConditionReason,
    ConditionStatus,
    ConditionType,
    ExtractionJobStatus,
    Phase,
    ProgressStatus,
)


def condition(reason: str = "Running") -> Condition:
    return Condition(
        type=ConditionType.SUCCEEDED,
        status=ConditionStatus.UNKNOWN,
        reason=reason,
        message="",
        last_transition_time="2030-01-01T00:00:00Z",
        observed_generation=2,
    )


def test_it_is_written_in_camel_case_without_what_is_unknown() -> None:
    status = ExtractionJobStatus(
        observed_generation=2,
        conditions=(condition(),),
        phase=Phase.RUNNING,
        progress=ProgressStatus(rows_done=4, rows_total=10, percentage=40, summary="40%"),
    )
    assert json.loads(status.model_dump_json()) == {
        "observedGeneration": 2,
        "conditions": [
            {
                "type": "Succeeded",
                "status": "Unknown",
                "reason": "Running",
                "message": "",
                "lastTransitionTime": "2030-01-01T00:00:00Z",
                "observedGeneration": 2,
            }
        ],
        "phase": "Running",
        "progress": {
            "rowsDone": 4,
            "rowsTotal": 10,
            "rowsQuarantined": 0,
            "percentage": 40,
            "summary": "40%",
            "tokens": 0,
            "bytes": 0,
        },
    }


@pytest.mark.parametrize("reason", [*ConditionReason, *Reason])
def test_every_reason_is_one_that_a_condition_can_have(reason: str) -> None:
    assert condition(reason).reason == reason


@pytest.mark.parametrize("reason", ["", "no spaces", "9", "Ends,"])
def test_other_reasons_are_refused(reason: str) -> None:
    with pytest.raises(ValidationError):
        condition(reason)


def test_the_cluster_and_the_shards_never_share_a_reason() -> None:
    assert set(ConditionReason) & set(Reason) == set()
