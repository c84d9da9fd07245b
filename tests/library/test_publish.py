import errno
import os
import threading
from dataclasses import replace

import pytest

import drillcore
from drillcore.commit import Commit, Complete
from drillcore.durable import publish_once
from drillcore.journal import QuarantineLog
from drillcore.publish import current_commit, publish_commit, publish_complete, publish_manifest


def refuse_links(monkeypatch):
    def refuse(source, target):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)


@pytest.mark.parametrize("links", [True, False])
def test_one_of_many_writers_publishes_and_the_file_is_always_whole(tmp_path, monkeypatch, links):
    if not links:
        refuse_links(monkeypatch)
    path = tmp_path / "x.json"
    contents = [bytes([65 + i]) * 10_000 for i in range(8)]
    results = []
    start = threading.Barrier(8)

    def write(number):
        start.wait()
        results.append(publish_once(path, contents[number], f"0000000{number}"))

    threads = [threading.Thread(target=write, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() in contents
    assert results.count(True) == 1 if links else any(results)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("links", [True, False])
def test_a_published_file_is_never_replaced_by_another_writer(tmp_path, monkeypatch, links):
    if not links:
        refuse_links(monkeypatch)
    assert publish_once(tmp_path / "x", b"first", "00000001")
    assert not publish_once(tmp_path / "x", b"second", "00000002")
    assert (tmp_path / "x").read_bytes() == b"first"


def test_a_link_whose_answer_was_lost_is_still_ours(tmp_path, monkeypatch):
    """A network file system repeats the request and then finds its own link."""
    real = os.link

    def twice(source, target):
        real(source, target)
        real(source, target)

    monkeypatch.setattr(os, "link", twice)
    assert publish_once(tmp_path / "x", b"1", "00000001")


def test_a_new_folder_is_claimed_and_claimed_again_by_the_same_job(maker):
    maker.claim()
    before = maker.layout.manifest.stat()
    maker.claim()
    publish_manifest(maker.layout, replace(maker.manifest, engine_version="2.0"))
    assert maker.layout.manifest.stat() == before


@pytest.mark.parametrize("name", ["lost+found", ".snapshot", ".nfs0001"])
def test_what_a_file_system_puts_at_its_root_is_not_foreign(maker, name):
    (maker.root / name).mkdir(parents=True)
    maker.claim()


@pytest.mark.parametrize("name", ["model.safetensors", "complete.json", "shards"])
def test_a_folder_with_something_else_is_refused_and_left_alone(maker, name):
    maker.root.mkdir()
    (maker.root / name).write_text("mine")
    with pytest.raises(drillcore.OutputForeignError, match=name):
        maker.claim()
    assert [path.name for path in maker.root.iterdir()] == [name]


@pytest.mark.parametrize("content", ["", "{}", '{"name": "my web app", "formatVersion": 0}'])
def test_a_manifest_of_something_else_is_refused(maker, content):
    maker.root.mkdir()
    maker.layout.manifest.write_text(content)
    with pytest.raises(drillcore.OutputForeignError, match="choose an empty folder"):
        maker.claim()
    assert maker.layout.manifest.read_text() == content


def test_another_job_is_refused_with_each_field_that_differs(maker):
    maker.claim()
    other = maker.vary(
        layers=(2, 1),
        model=replace(maker.manifest.model, uri="file:///models/other", weights_fingerprint="0" * 64),
        dataset={**maker.manifest.dataset, "lossMask": "Assistant"},
    )
    with pytest.raises(drillcore.OutputIdentityError) as raised:
        other.claim()
    assert raised.value.fields == ("model.uri", "model.weightsFingerprint", "dataset.lossMask", "layers")
    assert "`layers` is [2,0] there, [2,1] in this job" in str(raised.value)


def test_an_output_that_is_a_file_or_not_writable_is_a_typed_error(maker, tmp_path, monkeypatch):
    (tmp_path / "out").write_text("")
    with pytest.raises(drillcore.OutputUnwritableError):
        maker.claim()
    (tmp_path / "out").unlink()

    def read_only(path, mode=0o777):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "mkdir", read_only)
    with pytest.raises(drillcore.OutputUnwritableError, match="not writable"):
        maker.claim()


@pytest.mark.parametrize("links", [True, False])
def test_a_commit_comes_back_from_its_file(maker, monkeypatch, links):
    if not links:
        refuse_links(monkeypatch)
    commit = maker.shard([range(4), [4, 6]], quarantined=[5])
    assert Commit.load(maker.layout.shard(0).commit) == commit
    assert (commit.counts.rows_in, commit.counts.rows_out, commit.counts.rows_quarantined) == (7, 6, 1)
    assert set(commit.layer_stats) == {"2", "0", "finalNorm"}
    assert not list(maker.root.rglob("*.tmp"))


def test_a_shard_without_rows_commits_empty(maker):
    commit = maker.shard([])
    assert (commit.parts, commit.counts.rows_in, commit.layer_stats) == ((), 0, {})


def test_rows_that_do_not_add_up_are_not_committed(maker):
    maker.claim()
    part = maker.part(range(4))
    log = QuarantineLog(maker.layout.shard(0), "00000001")
    with pytest.raises(drillcore.RowCountError, match="5 rows came in, but 4 are stored and 0 quarantined"):
        publish_commit(maker.layout.shard(0), maker.manifest, "00000001", parts=[part], quarantine=log, rows_in=5)
    assert not maker.layout.shard(0).commit.exists()
    log.close()


def test_the_first_part_counts_for_a_row_that_stands_in_two(maker):
    maker.claim()
    parts = [maker.part([3, 4, 5]), maker.part([5, 6], attempt="00000002"), maker.part([4], attempt="00000003")]
    log = QuarantineLog(maker.layout.shard(0), "00000002")
    commit = publish_commit(maker.layout.shard(0), maker.manifest, "00000002", parts=parts, quarantine=log, rows_in=4)
    log.close()
    assert [part.name for part in commit.parts] == [part.name for part in parts[:2]]
    assert commit.counts.tokens == sum(len(maker.row(row).token_ids) for row in (3, 4, 5, 6))
    once = maker.vary()
    once.root = maker.root.with_name("once")
    alone = once.shard([[3, 4, 5, 6]])
    for column, stats in alone.layer_stats.items():
        assert commit.layer_stats[column].mean_norm == pytest.approx(stats.mean_norm)
        assert commit.layer_stats[column].max_abs == stats.max_abs


def second_attempt(maker, rows, attempt="00000002", **changes):
    """Another attempt's commit of the same shard."""
    other = maker.vary(**changes)
    log = QuarantineLog(maker.layout.shard(0), attempt)
    part = other.part(rows, attempt=attempt)
    try:
        return publish_commit(
            maker.layout.shard(0), other.manifest, attempt, parts=[part], quarantine=log, rows_in=len(rows)
        )
    finally:
        log.close()


def test_the_commit_of_another_attempt_with_the_same_rows_is_accepted(maker):
    first = maker.shard([range(4)])
    assert second_attempt(maker, range(4)) == first
    assert drillcore.verify(maker.root).ok


def test_a_commit_with_other_rows_or_of_another_job_is_not_replaced(maker):
    first = maker.vary(shard_count=2)
    committed = first.shard([range(4)])
    with pytest.raises(drillcore.OutputIdentityError, match="4 rows in; this attempt has 5"):
        second_attempt(first, range(5))
    with pytest.raises(drillcore.OutputIdentityError, match="another job"):
        second_attempt(first, range(4), attempt="00000003", max_model_len=5)
    assert Commit.load(maker.layout.shard(0).commit) == committed


def test_a_broken_commit_is_replaced(maker):
    maker.shard([range(4)])
    maker.layout.shard(0).commit.write_bytes(b"\0" * 100)
    assert current_commit(maker.layout.shard(0)) is None
    assert second_attempt(maker, range(4)).attempt == "00000002"
    assert Commit.load(maker.layout.shard(0).commit).attempt == "00000002"


def with_max_samples(maker, max_samples):
    return maker.vary(dataset={**maker.manifest.dataset, "maxSamples": max_samples})


def test_a_longer_run_replaces_the_commit_and_a_shorter_one_is_refused(maker):
    four = with_max_samples(maker, 4)
    four.shard([range(4)])
    four.complete()
    six = with_max_samples(maker, 6)
    six.claim()
    second_attempt(six, range(6))
    publish_complete(six.layout, six.manifest)
    assert Complete.load(six.layout.complete).counts.rows_in == 6
    assert len(drillcore.open(maker.root)) == 6
    assert drillcore.verify(maker.root).ok
    with pytest.raises(drillcore.OutputIdentityError, match="may grow but not shrink") as raised:
        four.claim()
    assert raised.value.fields == ("dataset.maxSamples",)
    with_max_samples(maker, None).claim()


def test_a_run_that_was_not_committed_cannot_be_shortened_either(maker):
    with_max_samples(maker, 10).claim()
    with pytest.raises(drillcore.OutputIdentityError, match="made with 10, this job asks for 5"):
        with_max_samples(maker, 5).claim()


def test_complete_is_written_when_the_last_shard_is_committed(maker):
    two = maker.vary(shard_count=2)
    two.shard([range(4)])
    assert publish_complete(two.layout, two.manifest) is None
    assert not two.layout.complete.exists()
    two.shard([range(4, 7)], shard=1, quarantined=[7])
    complete = publish_complete(two.layout, two.manifest)
    assert complete == Complete.load(two.layout.complete)
    assert (complete.shards, complete.counts.rows_in, complete.counts.rows_quarantined) == (2, 8, 1)


def test_complete_is_a_pure_function_of_the_commits(maker):
    maker.shard([range(4)])
    maker.complete()
    before = maker.layout.complete.read_bytes()
    maker.layout.complete.unlink()
    maker.complete()
    assert maker.layout.complete.read_bytes() == before


def test_statistics_of_all_shards_are_those_of_one(maker):
    one = maker.shard([range(9)])
    two = maker.vary(shard_count=2)
    two.root = maker.root.with_name("two")
    two.shard([range(4)])
    two.shard([range(4, 9)], shard=1)
    complete = publish_complete(two.layout, two.manifest)
    for column, stats in one.layer_stats.items():
        assert complete.layer_stats[column].mean_norm == pytest.approx(stats.mean_norm)
        assert complete.layer_stats[column].max_abs == stats.max_abs
