"""Situations from the field, one at a time: a condition and an event tell each (drillcore_testcluster.situations)."""

from __future__ import annotations

import pytest

from drillcore_testcluster.field import Field
from drillcore_testcluster.situations import SITUATIONS

pytestmark = pytest.mark.apiserver


@pytest.mark.parametrize("name", SITUATIONS)
def test_status_and_an_event_tell_the_situation(schedulable: Field, name: str) -> None:
    situation = SITUATIONS[name]
    job = situation.arrange(schedulable, "job")
    condition = job.wait(situation.type, situation.status, situation.reason)
    missing = [words for words in situation.words if words not in condition["message"]]
    assert not missing, condition["message"]
    assert situation.reason in {event["reason"] for event in job.events()}
