"""A process that dies between any two system calls, and two writers that meet at any of them."""

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future

import pytest

import drillcore
from drillcore.journal import Journal, QuarantineLog
from drillcore.publish import publish_commit, publish_complete, publish_manifest
from drillcore.recover import recover

ROWS = range(7)
QUARANTINED = (3,)
CALLS = ("open", "pwrite", "fsync", "rename", "link", "unlink", "mkdir", "close")


class Crash(BaseException):
    """The process is dead: no handler of ours runs on."""


class AtOnce(Executor):
    """Runs what it is given in the caller's thread, so that the order of system calls is the same each time."""

    def submit(self, function, /, *arguments):
        future = Future()
        future.set_result(function(*arguments))
        return future


def watch(patch: pytest.MonkeyPatch, before: Callable[[int, str], None]) -> None:
    """Call `before` ahead of each system call that changes the disk, with its number."""
    count = iter(range(10**9))

    def watched(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **named: object) -> object:
            before(next(count), name)
            return real(*arguments, **named)

        return call

    for name in CALLS:
        patch.setattr(os, name, watched(name, getattr(os, name)))


def attempt_at(maker, attempt: str, committed: set[int], computed: list[int]) -> None:
    """One whole attempt, as the sidecar makes it; `committed` grows when a journal's append returns."""
    publish_manifest(maker.layout, maker.manifest)
    shard = maker.layout.shard(0)
    recovered = recover(shard, maker.manifest)
    journal = Journal(shard, attempt)
    log = QuarantineLog(shard, attempt, recovered.quarantined)
    parts = list(recovered.parts)
    missing = [row for row in ROWS if row not in recovered.rows_done]
    for number, rows in enumerate((missing[:2], missing[2:])):
        stored = [row for row in rows if row not in QUARANTINED]
        writer = maker.part_writer(shard, number, attempt, AtOnce())
        for row in rows:
            if row in QUARANTINED:
                log.append(maker.quarantined(row))
        computed.extend(stored)
        maker.write(writer, stored)
        log.sync()
        info = writer.close()
        if info is not None:
            journal.append(info)
            committed.update(stored)
            parts.append(info)
    publish_commit(shard, maker.manifest, attempt, parts=parts, quarantine=log, rows_in=len(ROWS))
    journal.close()
    log.close()
    publish_complete(maker.layout, maker.manifest)


def assert_whole(maker) -> None:
    report = drillcore.verify(maker.root)
    assert report.problems == ()
    assert not report.wrote_complete
    output = drillcore.open(maker.root)
    assert output.rows.tolist() == [row for row in ROWS if row not in QUARANTINED]
    assert [entry.row for entry in output.quarantined()] == list(QUARANTINED)
    for sample in output:
        assert (sample.hidden_states == maker.row(sample.row).states).all()


def number_of_calls(maker) -> int:
    calls = []
    with pytest.MonkeyPatch.context() as patch:
        watch(patch, lambda number, name: calls.append(name))
        attempt_at(maker, "00000001", set(), [])
    assert {"rename", "link", "fsync"} <= set(calls)
    return len(calls)


@pytest.fixture(params=["Packed", "PerSample"])
def places(maker, monkeypatch, request):
    """A maker of an output in a folder of its own for each place where something happens.

    fsync is only counted: the death of a process loses no page, and hundreds of them take long.
    """
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    maker = maker.vary(layout=request.param)
    measured = maker.vary()
    measured.root = maker.root.with_name("measured")
    count = number_of_calls(measured)
    makers = []
    for place in range(count):
        here = maker.vary()
        here.root = maker.root / f"{place}"
        makers.append(here)
    maker.root.mkdir()
    return makers


def test_after_a_crash_at_any_system_call_a_resume_runs_no_committed_row_again_and_loses_none(places):
    for place, maker in enumerate(places):
        committed: set[int] = set()

        def die(number, name, place=place):
            if number >= place:
                raise Crash

        with pytest.MonkeyPatch.context() as patch:
            watch(patch, die)
            with pytest.raises(Crash):
                attempt_at(maker, "00000001", committed, [])
        computed: list[int] = []
        attempt_at(maker, "00000002", set(), computed)
        assert not committed & set(computed), f"crash before call {place}"
        assert_whole(maker)


def test_a_reader_that_looks_at_any_moment_sees_whole_files_only(places):
    maker = places[0]
    rows = []

    def look(number, name):
        if not maker.layout.manifest.exists():
            return
        with pytest.MonkeyPatch.context():
            output = drillcore.open(maker.root, allow_incomplete=True)
            rows.append([sample.row for sample in output])
            for path in maker.root.rglob("*.safetensors"):
                assert path.read_bytes()[8:9] == b"{", f"{path} is visible before it is whole"

    with pytest.MonkeyPatch.context() as patch:
        watch(patch, look)
        attempt_at(maker, "00000001", set(), [])
    assert rows[0] == []
    assert [0, 1] in rows
    assert rows[-1] == [0, 1, 2, 4, 5, 6]


def test_two_writers_on_one_folder_leave_one_whole_output_wherever_they_meet(places):
    for place, maker in enumerate(places):
        met = []

        def meet(number, name, place=place, maker=maker, met=met):
            if number == place and not met:
                met.append(name)
                attempt_at(maker, "00000002", set(), [])

        with pytest.MonkeyPatch.context() as patch:
            watch(patch, meet)
            attempt_at(maker, "00000001", set(), [])
        assert met, f"no call {place}"
        assert_whole(maker)
