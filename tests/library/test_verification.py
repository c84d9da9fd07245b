import json
import os
import shutil
from dataclasses import replace

import pytest
import xxhash

import drillcore
from drillcore.commit import Commit, Complete
from drillcore.durable import publish
from drillcore.part_info import FileInfo
from drillcore.sample_index import SampleIndex


@pytest.fixture
def whole(make):
    maker = make(shard_count=2)
    maker.shard([range(4), [4, 6]], quarantined=[5])
    maker.shard([range(7, 9)], shard=1)
    return maker


def rewrite_commit(maker, **changes):
    shard = maker.layout.shard(0)
    commit = replace(Commit.load(shard.commit), **changes)
    publish(shard.commit, commit.to_bytes(), "00000009")


def test_a_whole_output_passes_and_gets_its_missing_complete_json(whole):
    seen = []
    report = drillcore.verify(whole.root, on_read=seen.append)
    assert (report.ok, report.problems, report.wrote_complete) == (True, (), True)
    assert Complete.load(whole.layout.complete).counts == report.counts
    assert (report.shards, report.shards_committed, report.counts.rows_in) == (2, 2, 9)
    parts = sum(path.stat().st_size for path in whole.root.rglob("part-*"))
    quarantined = sum(path.stat().st_size for path in whole.root.rglob("quarantine-*"))
    assert sum(seen) == report.bytes_checked == parts + quarantined
    assert not drillcore.verify(whole.root).wrote_complete


def test_the_report_is_json(whole):
    report = json.loads(json.dumps(drillcore.verify(whole.root).to_json()))
    assert report["ok"] is True
    assert report["counts"]["rowsIn"] == 9
    assert report["wroteComplete"] is True


def test_a_shard_that_is_not_committed_is_a_problem(make):
    maker = make(shard_count=3)
    maker.shard([range(4)])
    maker.shard([range(4, 6)], shard=1, commit=False)
    report = drillcore.verify(maker.root)
    assert not report.ok
    assert report.problems == (f"{maker.root}: 2 of 3 shards are not committed",)
    assert not maker.layout.complete.exists()


def test_any_changed_byte_of_any_committed_file_is_found(whole):
    files = [path for path in whole.root.rglob("*") if path.suffix in (".safetensors", ".json") and path.is_file()]
    files += [path for path in whole.root.rglob("quarantine-*") if path.stat().st_size]
    assert len(files) == 3 + 2 + 2 + 1 + 1
    for path in files:
        data = path.read_bytes()
        for at in range(0, len(data), max(1, len(data) // 12)):
            changed = bytearray(data)
            changed[at] ^= 0x04
            path.write_bytes(changed)
            try:
                report = drillcore.verify(whole.root)
            except drillcore.DrillcoreError:
                continue
            unseen = _json(data) == _json(changed) if path.suffix == ".json" else False
            harmless = path.name == "manifest.json" and b"engineVersion" in data[at - 30 : at + 30]
            assert not report.ok or unseen or harmless, f"{path} at {at}"
        path.write_bytes(data)
    assert drillcore.verify(whole.root).ok


def _json(data):
    try:
        return json.loads(data, parse_float=lambda text: round(float(text), 8))
    except ValueError:
        return None


def test_missing_files_are_named(whole):
    shard = whole.layout.shard(0)
    gone = [shard.part(1, "00000001"), shard.quarantine("00000001")]
    for path in gone:
        path.unlink()
    problems = drillcore.verify(whole.root).problems
    assert problems == tuple(f"{path}: the file is missing" for path in gone)


def test_a_row_that_is_lost_or_doubled_is_named(make):
    maker = make(shard_count=2)
    maker.shard([[0, 1, 3]])
    maker.shard([range(4, 6)], shard=1)
    assert drillcore.verify(maker.root).problems == (
        f"{maker.layout.shard(0).directory}: expected row 2 once, found row 3",
    )
    shutil.rmtree(maker.root)
    maker.shard([range(3)], quarantined=[1])
    maker.shard([range(3, 6)], shard=1)
    assert "expected row 2 once, found row 1" in drillcore.verify(maker.root).problems[0]
    shutil.rmtree(maker.root)
    maker.shard([range(3)])
    maker.shard([range(4, 6)], shard=1)
    assert "expected row 3 once, found row 4" in drillcore.verify(maker.root).problems[0]


def test_an_index_that_contradicts_its_parts_is_found_even_with_a_right_checksum(whole):
    shard = whole.layout.shard(0)
    commit = Commit.load(shard.commit)
    index = SampleIndex.load(shard.named(commit.index.name), commit.parts)
    forged = replace(index, num_prompt_tokens=index.num_prompt_tokens + 1).to_bytes()
    shard.named(commit.index.name).write_bytes(forged)
    rewrite_commit(whole, index=FileInfo(commit.index.name, len(forged), xxhash.xxh3_64_hexdigest(forged)))
    assert "says other than the parts in num_prompt_tokens" in drillcore.verify(whole.root).problems[0]


def test_statistics_that_are_not_those_of_the_parts_are_found(whole):
    commit = Commit.load(whole.layout.shard(0).commit)
    stats = {**commit.layer_stats, "2": replace(commit.layer_stats["2"], mean_norm=1.0)}
    rewrite_commit(whole, layer_stats=stats)
    assert "`layerStats` is not what the parts add up to" in drillcore.verify(whole.root).problems[0]


def test_quarantine_counts_are_checked(whole):
    commit = Commit.load(whole.layout.shard(0).commit)
    rewrite_commit(whole, counts=replace(commit.counts, rows_skipped=1))
    assert "not what commit.json counts" in drillcore.verify(whole.root).problems[0]


def test_contexts_are_numbered_apart_from_quarantined_rows(make):
    maker = make(shard_count=2, dataset={"uri": "file:///x", "files": [], "contextSize": 8})
    maker.shard([range(3)], quarantined=[1])
    maker.shard([range(2**40, 2**40 + 3)], shard=1)
    assert drillcore.verify(maker.root).problems == ()


def test_an_outdated_complete_json_is_written_anew(whole):
    drillcore.verify(whole.root)
    data = whole.layout.complete.read_bytes()
    whole.layout.complete.write_bytes(b"{}")
    assert drillcore.verify(whole.root).wrote_complete
    assert whole.layout.complete.read_bytes() == data


def test_a_reader_without_write_access_verifies_as_well(whole, monkeypatch):
    def read_only(*arguments, **named):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", read_only)
    report = drillcore.verify(whole.root)
    assert (report.ok, report.wrote_complete) == (True, False)
