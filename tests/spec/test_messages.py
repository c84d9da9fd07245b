"""Termination messages and progress reports."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from drillcore_spec.messages import MAX_TERMINATION_BYTES, Counts, ProgressReport, TerminationMessage
from drillcore_spec.reasons import EXIT_RULES, Reason

REPORT = {
    "shard": 3,
    "attempt": "5f2c9a10",
    "seq": 1,
    "rowsTotal": 10,
    "rowsDone": 4,
    "rowsQuarantined": 1,
    "tokens": 100,
    "bytes": 2**40,
    "state": "Running",
}


@settings(deadline=None)
@given(st.sampled_from(Reason), st.text(max_size=6000))
def test_a_termination_message_is_one_short_line_that_reads_back(reason: Reason, text: str) -> None:
    message = TerminationMessage(code=reason.exit_code, reason=reason, message=text, counts=Counts(rows_in=2**60))
    line = message.to_line()
    assert "\n" not in line
    assert len(line.encode()) <= MAX_TERMINATION_BYTES
    read = TerminationMessage.from_text(line)
    assert read is not None
    assert read.counts == message.counts
    assert read == message or text.startswith(read.message.removesuffix("..."))


def test_a_long_message_keeps_most_of_its_head() -> None:
    message = TerminationMessage(code=70, reason=Reason.INTERNAL, message="\u20ac" * 5000)
    assert len(message.to_line().encode()) > MAX_TERMINATION_BYTES - 10


def test_its_keys_are_those_of_the_commit_file() -> None:
    line = TerminationMessage(code=0, reason=Reason.COMMITTED).to_line()
    assert json.loads(line) == {
        "code": 0,
        "reason": "Committed",
        "message": "",
        "counts": dict.fromkeys(
            ["rowsIn", "rowsOut", "rowsQuarantined", "rowsSkipped", "tokens", "states", "bytes"], 0
        ),
    }


def test_the_last_line_of_logs_is_read() -> None:
    line = TerminationMessage(code=0, reason=Reason.COMMITTED).to_line()
    assert TerminationMessage.from_text(f"log\n{line}\n") == TerminationMessage(code=0, reason=Reason.COMMITTED)


@pytest.mark.parametrize("text", ["", "\n", "Traceback (most recent call last):", "[]", '{"code": 0}', '{"code": "0"}'])
def test_what_is_no_termination_message_gives_none(text: str) -> None:
    assert TerminationMessage.from_text(text) is None


def test_a_report_reads_back() -> None:
    report = ProgressReport.model_validate_json(json.dumps(REPORT))
    assert json.loads(report.to_json()) == REPORT


def test_keys_of_a_newer_sidecar_are_ignored() -> None:
    assert ProgressReport.model_validate_json(json.dumps(REPORT | {"new": 1})).rows_done == 4


@pytest.mark.parametrize(
    "change",
    [{"rowsDone": -1}, {"rowsDone": "4"}, {"shard": True}, {"attempt": "../etc"}, {"state": "Done"}, {"seq": None}],
    ids=str,
)
def test_a_wrong_report_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ProgressReport.model_validate_json(json.dumps(REPORT | change))


def test_every_reason_has_one_exit_code() -> None:
    assert sorted(reason for rule in EXIT_RULES for reason in rule.reasons) == sorted(Reason)
    assert len({rule.code for rule in EXIT_RULES}) == len(EXIT_RULES)
