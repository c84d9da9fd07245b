import json
import os

import pytest

import drillcore
from drillcore.cleaning import clean_shard
from drillcore.journal import QuarantineLog
from drillcore.layout import temporary
from drillcore.publish import publish_commit
from drillcore.recover import recover

LATER_S = 10**10
"""A time at which every file of the test is old."""


def names(report):
    return sorted(file.name for file in report.files)


@pytest.fixture
def crashed(maker):
    """One commit; beside it an attempt that lost the race, one that died in a part, and a stranger's file."""
    maker.shard([range(4)])
    maker.journal([maker.part(range(4), attempt="00000002")], attempt="00000002")
    shard = maker.layout.shard(0)
    temporary(shard.part(0, "00000003")).write_bytes(bytes(1000))
    temporary(shard.commit, "00000003").write_bytes(b"{")
    temporary(maker.layout.manifest, "00000003").write_bytes(b"{")
    (shard.directory / "notes.txt").write_text("mine")
    return maker


def test_what_no_commit_names_is_found_and_nothing_is_removed_unasked(crashed):
    before = sorted(crashed.root.rglob("*"))
    report = drillcore.clean(crashed.root, now_s=LATER_S)
    assert names(report) == [
        "commit.json.00000003.tmp",
        "journal-00000002.jsonl",
        "manifest.json.00000003.tmp",
        "part-00000-00000002.safetensors",
        "part-00000-00000003.safetensors.tmp",
    ]
    assert report.bytes == sum(file.stat().st_size for file in report.files)
    assert not report.removed
    assert sorted(crashed.root.rglob("*")) == before
    assert json.loads(json.dumps(report.to_json()))["files"][0] == "manifest.json.00000003.tmp"


def test_on_request_it_is_removed_and_the_output_stays_whole(crashed):
    report = drillcore.clean(crashed.root, remove=True, now_s=LATER_S)
    assert report.removed
    assert not any(file.exists() for file in report.files)
    assert (crashed.layout.shard(0).directory / "notes.txt").exists()
    assert drillcore.verify(crashed.root).ok
    assert drillcore.clean(crashed.root, now_s=LATER_S).files == ()
    assert recover(crashed.layout.shard(0), crashed.manifest).rows.tolist() == [0, 1, 2, 3]


def test_an_attempt_that_wrote_lately_is_left_alone_with_all_its_files(crashed):
    shard = crashed.layout.shard(0)
    now = shard.commit.stat().st_mtime
    for path in crashed.root.rglob("*0000000[23]*"):
        os.utime(path, (now - 7200, now - 7200))
    os.utime(shard.journal("00000002"), (now, now))
    report = drillcore.clean(crashed.root, min_age_s=3600, now_s=now)
    assert {name for name in names(report) if "00000002" in name} == set()
    assert len(report.files) == 3


def test_an_unfinished_shard_keeps_all_that_a_resume_would_use(maker):
    maker.shard([range(2)], quarantined=[5], commit=False)
    shard = maker.layout.shard(0)
    maker.part([3], attempt="00000002")
    temporary(shard.part(1, "00000002")).write_bytes(bytes(10))
    before = recover(shard, maker.manifest)
    assert clean_shard(shard, now_s=LATER_S) > 10
    after = recover(shard, maker.manifest)
    assert (after.parts, after.quarantined) == (before.parts, before.quarantined)
    assert sorted(path.name for path in shard.directory.iterdir()) == [
        "journal-00000001.jsonl",
        "part-00000-00000001.safetensors",
        "quarantine-00000001.jsonl",
    ]


def test_parts_of_earlier_attempts_that_a_commit_names_stay_with_their_journals(maker):
    maker.shard([range(2)], commit=False)
    shard = maker.layout.shard(0)
    first = recover(shard, maker.manifest).parts
    second = maker.part([2, 3], attempt="00000002")
    maker.journal([second], attempt="00000002")
    log = QuarantineLog(shard, "00000002")
    publish_commit(shard, maker.manifest, "00000002", parts=[*first, second], quarantine=log, rows_in=4)
    log.close()
    report = drillcore.clean(maker.root, remove=True, now_s=LATER_S)
    assert names(report) == ["quarantine-00000001.jsonl"]
    assert recover(shard, maker.manifest).rows.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("broken", [False, True])
def test_a_longer_run_that_crashed_keeps_what_it_journaled_beyond_the_commit(maker, broken):
    maker.shard([range(2)])
    shard = maker.layout.shard(0)
    maker.journal([maker.part([2, 3], attempt="00000002")], attempt="00000002")
    QuarantineLog(shard, "00000002", [maker.quarantined(4)]).close()
    if broken:
        shard.sample_index("00000001").write_bytes(b"")
    assert drillcore.clean(maker.root, now_s=LATER_S).files == ()
    assert recover(shard, maker.manifest).rows_done.tolist() == [0, 1, 2, 3, 4]
