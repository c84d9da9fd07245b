from __future__ import annotations

from drillcore_server.sidecar.writer_load import WriterLoad, choose_writer

BUSY_BYTES = 100


def load(index: int, queued_bytes: int = 0, num_closing: int = 0) -> WriterLoad:
    return WriterLoad(index, queued_bytes=queued_bytes, num_closing=num_closing)


def test_one_writer_is_used_while_it_keeps_up() -> None:
    assert choose_writer([load(0, 99), load(1), load(2)], BUSY_BYTES).index == 0


def test_a_busy_writer_leaves_the_sample_to_the_next() -> None:
    assert choose_writer([load(0, 100), load(1, 300), load(2, 5)], BUSY_BYTES).index == 2


def test_when_all_are_busy_the_least_busy_takes_it() -> None:
    assert choose_writer([load(0, 500), load(1, 300), load(2, 400)], BUSY_BYTES).index == 1


def test_a_writer_that_closes_its_part_is_left_alone_unless_all_do() -> None:
    assert choose_writer([load(0, num_closing=1), load(1, 500)], BUSY_BYTES).index == 1
    assert choose_writer([load(0, 7, num_closing=1), load(1, 500, num_closing=2)], BUSY_BYTES).index == 0


def test_a_part_is_due_by_size_or_by_the_age_of_its_first_sample() -> None:
    writer = load(0)
    assert not writer.is_due(max_bytes=0, max_age_s=0.0, now_s=1e9)
    writer.begin_sample(now_s=50.0)
    writer.begin_sample(now_s=58.0)
    writer.part_bytes = 99
    assert not writer.is_due(max_bytes=100, max_age_s=10.0, now_s=59.9)
    assert writer.is_due(max_bytes=100, max_age_s=10.0, now_s=60.0)
    assert writer.is_due(max_bytes=99, max_age_s=10.0, now_s=50.0)
    writer.begin_close()
    assert (writer.part_bytes, writer.opened_at_s, writer.num_closing) == (0, None, 1)
