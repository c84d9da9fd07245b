import errno
import os

import pytest

import drillcore
from drillcore.journal import Journal, QuarantineLog, read_journal, read_quarantine
from drillcore.json_lines import read_lines


def test_a_journal_gives_back_its_parts_in_order(maker):
    parts = [maker.part(range(3)), maker.part(range(3, 9), number=1)]
    maker.journal(parts)
    assert read_journal(maker.layout.shard(0).journal("00000001")) == (parts, [])


@pytest.mark.parametrize("cut", [1, 10, 100])
def test_a_line_that_a_crash_cut_off_never_counted(maker, cut):
    parts = [maker.part(range(3)), maker.part(range(3, 9), number=1)]
    maker.journal(parts)
    path = maker.layout.shard(0).journal("00000001")
    path.write_bytes(path.read_bytes()[:-cut])
    assert read_journal(path) == (parts[:1], [])


def test_a_broken_line_hides_no_other(maker):
    parts = [maker.part(range(3)), maker.part(range(3, 9), number=1)]
    maker.journal(parts)
    path = maker.layout.shard(0).journal("00000001")
    first, second, _ = path.read_bytes().split(b"\n")
    path.write_bytes(first + b"\n{]\n\n" + second + b"\n")
    found, errors = read_journal(path)
    assert found == parts
    assert [("line 2" in str(error), "line 3" in str(error)) for error in errors] == [(True, False), (False, True)]


def test_a_line_is_on_the_disk_when_append_returns(maker, monkeypatch):
    part = maker.part(range(3))
    journal = Journal(maker.layout.shard(0), "00000001")
    synced = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.fstat(fd).st_size), real(fd)))
    journal.append(part)
    assert synced == [maker.layout.shard(0).journal("00000001").stat().st_size]
    journal.close()


def test_a_file_that_could_not_take_a_line_takes_no_more(maker, monkeypatch):
    part = maker.part(range(3))
    journal = Journal(maker.layout.shard(0), "00000001")

    def full(fd, data, offset):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(drillcore.OutputVolumeFullError):
        journal.append(part)
    monkeypatch.undo()
    with pytest.raises(drillcore.WriteError, match="earlier line"):
        journal.append(part)
    journal.close()


def test_a_quarantine_file_holds_each_row_once(maker):
    maker.claim()
    shard = maker.layout.shard(0)
    log = QuarantineLog(shard, "00000001", [maker.quarantined(4)])
    for entry in (maker.quarantined(9, skipped=True), maker.quarantined(4), maker.quarantined(9, skipped=True)):
        log.append(entry)
    log.sync()
    assert (log.num_rows, log.num_skipped) == (2, 1)
    entries, errors = read_quarantine(shard.quarantine("00000001"))
    assert [entry.row for entry in entries] == [4, 9]
    assert errors == []
    assert log.info.bytes == shard.quarantine("00000001").stat().st_size
    log.close()
    log.close()


def test_an_unknown_quarantine_reason_is_named(maker, tmp_path):
    path = tmp_path / "quarantine-00000001.jsonl"
    path.write_text('{"row":1,"file":"x","line":1,"id":null,"reason":"Bored","message":"","skipped":false}\n')
    entries, errors = read_quarantine(path)
    assert entries == []
    assert "Bored" in str(errors[0])
    assert "UnreadableRow" in str(errors[0])


def test_lines_are_numbered_from_one(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"1\n2\n3")
    assert list(read_lines(path)) == [("line 1", 1), ("line 2", 2)]
