from dataclasses import replace

import numpy as np

from drillcore.journal import QuarantineLog
from drillcore.recover import recover


def test_a_fresh_shard_has_nothing_to_recover(maker):
    maker.claim()
    recovered = recover(maker.layout.shard(0), maker.manifest)
    assert (recovered.parts, recovered.rows.tolist(), recovered.quarantined) == ((), [], ())
    assert recovered.bytes == 0


def test_journaled_parts_of_all_attempts_are_kept(maker):
    first, second = maker.part([0, 1, 5]), maker.part([2, 7], attempt="00000002")
    maker.journal([first])
    maker.journal([second], attempt="00000002")
    recovered = recover(maker.layout.shard(0), maker.manifest)
    assert recovered.parts == (first, second)
    assert recovered.rows.tolist() == [0, 1, 2, 5, 7]
    assert recovered.bytes == first.bytes + second.bytes
    assert recovered.dropped == ()


def test_a_part_without_a_journal_line_was_never_committed(maker):
    maker.part([0, 1])
    maker.journal([maker.part([2], attempt="00000002")], attempt="00000002")
    assert recover(maker.layout.shard(0), maker.manifest).rows.tolist() == [2]


def test_a_part_whose_bytes_changed_is_dropped_and_its_rows_are_computed_again(maker):
    parts = [maker.part([0, 1]), maker.part([2, 3], number=1), maker.part([4], number=2), maker.part([5], number=3)]
    maker.journal(parts)
    shard = maker.layout.shard(0)
    flipped, cut, gone = (shard.named(part.name) for part in parts[:3])
    data = bytearray(flipped.read_bytes())
    data[5000] ^= 1
    flipped.write_bytes(data)
    cut.write_bytes(cut.read_bytes()[:-1])
    gone.unlink()
    recovered = recover(shard, maker.manifest)
    assert recovered.rows.tolist() == [5]
    assert recovered.parts == (parts[3],)
    for error, path, word in zip(
        recovered.dropped, (flipped, cut, gone), ("xxh3_64", "bytes long", "missing"), strict=True
    ):
        assert str(path) in str(error)
        assert word in str(error)


def test_a_part_that_holds_other_rows_than_its_line_says_is_dropped(maker):
    maker.journal([replace(maker.part([0, 1]), rows=((0, 2),))])
    recovered = recover(maker.layout.shard(0), maker.manifest)
    assert recovered.parts == ()
    assert "other rows" in str(recovered.dropped[0])


def test_a_part_of_another_job_is_dropped(maker):
    maker.journal([maker.part([0, 1])])
    recovered = recover(maker.layout.shard(0), replace(maker.manifest, max_model_len=7))
    assert recovered.parts == ()
    assert "metadata" in str(recovered.dropped[0])


def test_only_rows_in_the_wanted_range_count(maker):
    maker.journal([maker.part(range(10))])
    with_quarantine = QuarantineLog(maker.layout.shard(0), "00000001", [maker.quarantined(r) for r in (10, 12)])
    recovered = recover(maker.layout.shard(0), maker.manifest, keep=range(4, 11))
    assert recovered.rows.tolist() == [4, 5, 6, 7, 8, 9]
    assert [entry.row for entry in recovered.quarantined] == [10]
    with_quarantine.close()


def test_quarantined_rows_are_done_unless_another_attempt_stored_them(maker):
    maker.journal([maker.part([0, 1, 3])])
    for attempt, rows in (("00000001", [2, 3]), ("00000002", [2, 4])):
        QuarantineLog(maker.layout.shard(0), attempt, [maker.quarantined(row) for row in rows]).close()
    recovered = recover(maker.layout.shard(0), maker.manifest)
    assert [entry.row for entry in recovered.quarantined] == [2, 4]
    assert recovered.rows_done.tolist() == [0, 1, 2, 3, 4]


def test_a_quarantined_row_of_the_dataset_is_no_context(make):
    maker = make(dataset={"uri": "file:///x", "files": [], "contextSize": 64})
    maker.claim()
    maker.journal([maker.part([0, 1])])
    QuarantineLog(maker.layout.shard(0), "00000001", [maker.quarantined(1)]).close()
    recovered = recover(maker.layout.shard(0), maker.manifest)
    assert [entry.row for entry in recovered.quarantined] == [1]
    assert recovered.rows.tolist() == [0, 1]


def test_recovery_changes_nothing_on_disk(maker):
    maker.journal([maker.part([0, 1])])
    before = {path: path.read_bytes() for path in maker.root.rglob("*") if path.is_file()}
    assert np.array_equal(recover(maker.layout.shard(0), maker.manifest).rows, [0, 1])
    assert {path: path.read_bytes() for path in maker.root.rglob("*") if path.is_file()} == before
