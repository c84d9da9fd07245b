"""The worker side: steps are bound, saved and cleared; samples go out whole, in order, once."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from drillcore.records import QuarantineReason
from drillcore_kernels.reference_ops import REFERENCE_OPS
from drillcore_server.connector.copies import CpuCopier
from drillcore_server.connector.errors import StatesMissing, StepNotBound, StepNotSaved
from drillcore_server.connector.list_sink import ListSink, StateShape
from drillcore_server.connector.metadata import SampleHeader, SampleText, StateSlice, StepMetadata
from drillcore_server.connector.worker import ConnectorWorker, StateColumns
from drillcore_spec.enums import PositionsKind

BLOCK_SIZE = 4


class Bench:
    """A worker over a cache of 10 blocks in which state s holds the value s."""

    def __init__(self):
        self.cache = torch.arange(40.0).view(10, BLOCK_SIZE, 1, 1).expand(10, BLOCK_SIZE, 2, 3).contiguous()
        self.stats = torch.ones(10, BLOCK_SIZE, 2, 2)
        self.sink = ListSink(StateShape(2, 3, torch.float32, torch.device("cpu")))
        columns = StateColumns(("layer 1", "finalNorm"), (True, True))
        self.worker = ConnectorWorker(self.sink, CpuCopier(self.cache, REFERENCE_OPS), self.stats, columns)

    def step(self, *parts: tuple[SampleHeader, list[int], list[int], bool]) -> list[int]:
        """One step: (header, token positions, slots, whether it starts) of each request."""
        metadata = StepMetadata(tuple(StateSlice(h, np.array(p, dtype=np.int64), s) for h, p, _, s in parts))
        slots = np.concatenate([np.array(slots, dtype=np.int64) for _, _, slots, _ in parts])
        with self.worker.bound(metadata) as bound:
            self.worker.save(slots, torch.from_numpy(slots))
        return self.worker.absorb(bound.saved)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def header(row: int, kind: PositionsKind = PositionsKind.ALL, *, streams: bool = True) -> SampleHeader:
    return SampleHeader(row, kind, 4, streams=streams)


def text(num_tokens: int) -> SampleText:
    return SampleText(np.arange(num_tokens), None)


def test_a_sample_over_two_steps_and_scattered_blocks_is_put_together(bench):
    one = header(1)
    bench.step((one, [0, 1, 2], [36, 37, 38], True))
    bench.worker.poll()
    bench.step((one, [3, 4], [8, 9], False))
    bench.worker.finish(1, text(5))

    assert bench.worker.poll() == [1]
    (sample,) = bench.sink.samples
    assert sample.hidden_states[:, 0, 0].tolist() == [36, 37, 38, 8, 9]
    assert sample.end.norm_sums.tolist() == [5, 5]


def test_a_finished_sample_goes_before_one_that_only_started(bench):
    one, two = header(1), header(2)
    bench.step((one, [0], [4], True), (two, [0], [8], True))
    bench.worker.finish(2, text(1))

    assert bench.worker.poll() == [2]
    bench.step((one, [1], [5], False))
    bench.worker.finish(1, text(2))
    assert bench.worker.poll() == [1]
    assert [sample.end.row for sample in bench.sink.samples] == [2, 1]


def test_a_sample_that_will_generate_does_not_keep_others_waiting(bench):
    generating, other = header(1, streams=False), header(2)
    bench.step((generating, [0], [4], True))
    bench.worker.poll()
    bench.step((other, [0], [8], True))
    bench.worker.finish(2, text(1))

    assert bench.worker.poll() == [2]


def test_the_last_state_replaces_those_of_earlier_chunks(bench):
    one = header(1, PositionsKind.LAST)
    bench.step((one, [3], [5], True))
    assert bench.worker.poll() == []
    bench.step((one, [6], [7], False))
    bench.worker.finish(1, text(7))
    bench.worker.poll()

    sample = bench.sink.by_row()[1]
    assert sample.hidden_states[:, 0, 0].tolist() == [7]
    assert sample.end.positions.tolist() == [6]
    assert sample.end.norm_sums.tolist() == [1, 1]


def test_a_sample_of_which_nothing_is_kept_is_quarantined(bench):
    mask = np.zeros(3, dtype=np.uint8)
    one = SampleHeader(1, PositionsKind.LOSS_MASK, 3, streams=True, loss_mask=mask)
    bench.step((one, [], [], True))

    assert not bench.worker.finish(1, text(3))
    assert bench.worker.poll() == [1]
    assert bench.worker.poll() == []
    (entry,) = bench.sink.quarantined
    assert (entry.row, entry.reason) == (1, QuarantineReason.NOTHING_SELECTED)
    assert entry.message == "positions LossMask select none of 3 tokens"


def test_a_mean_is_one_state_over_all_steps_with_its_own_statistics(bench):
    one, two = header(1, PositionsKind.MEAN), header(2, PositionsKind.MEAN)
    bench.step((one, [0, 1], [36, 37], True), (two, [0], [9], True))
    assert bench.worker.poll() == []
    bench.step((one, [2], [8], False))
    bench.worker.finish(2, text(1))
    bench.worker.finish(1, text(3))

    assert bench.worker.poll() == [2, 1]
    sample = bench.sink.by_row()[1]
    assert (sample.end.num_states, sample.end.positions) == (1, None)
    assert sample.hidden_states.tolist() == [[[27.0] * 3] * 2]
    assert np.allclose(sample.end.norm_sums, 27 * np.sqrt(3))
    assert sample.end.max_abs.tolist() == [27, 27]


def test_a_mean_whose_sum_overflows_is_quarantined(bench):
    bench.cache[9] = 3e38
    bench.step((header(1, PositionsKind.MEAN), [0, 1], [36, 37], True))
    bench.worker.finish(1, text(2))

    assert bench.worker.poll() == [1]
    bench.worker.poll()
    assert bench.sink.samples == []
    assert bench.sink.quarantined[0].reason is QuarantineReason.NON_FINITE_STATE


def test_a_mean_over_too_few_tokens_is_never_made(bench):
    bench.step((header(1, PositionsKind.MEAN), [0, 1], [4, 5], True))

    with pytest.raises(StatesMissing, match="row 1 has 3 tokens but 2 states"):
        bench.worker.finish(1, text(3))


def test_a_sample_that_is_aborted_before_its_mean_is_made_keeps_its_blocks_until_then(bench):
    bench.step((header(1, PositionsKind.MEAN), [0], [4], True))
    bench.worker.finish(1, text(1))

    assert bench.worker.abort(1)
    assert bench.worker.poll() == [1]
    assert bench.sink.samples == []


def test_a_token_without_a_state_is_never_shipped(bench):
    bench.step((header(1), [0, 1], [4, 5], True))
    bench.worker.finish(1, text(3))

    with pytest.raises(StatesMissing, match="row 1 has 3 tokens but 2 states"):
        bench.worker.poll()


def test_a_fault_found_after_a_chunk_was_shipped_drops_the_sample(bench):
    one = header(1)
    bench.step((one, [0, 1], [4, 5], True))
    bench.worker.poll()
    bench.stats.view(-1, 2, 2)[6, 1] = torch.inf

    assert bench.step((one, [2, 3], [6, 7], False)) == [1]
    assert bench.worker.poll() == [1]
    assert bench.sink.samples == []
    (entry,) = bench.sink.quarantined
    assert entry.message == "states must be finite; finalNorm is not, at or between tokens 2 and 3"


def test_results_of_a_sample_that_was_aborted_meanwhile_are_passed_over(bench):
    one = header(1)
    metadata = StepMetadata((StateSlice(one, np.array([0]), True),))
    with bench.worker.bound(metadata) as bound:
        bench.worker.save(np.array([4]), torch.tensor([4]))

    assert not bench.worker.abort(1)
    again = header(1)
    bench.step((again, [0], [9], True))
    assert bench.worker.absorb(bound.saved) == []
    bench.worker.finish(1, text(1))
    bench.worker.poll()
    assert bench.sink.samples[0].hidden_states[:, 0, 0].tolist() == [9]


def test_an_open_sample_that_is_aborted_is_dropped_at_the_next_poll(bench):
    one, two = header(1), header(2)
    bench.step((one, [0], [4], True), (two, [0], [8], True))
    bench.worker.poll()

    assert bench.worker.abort(1)
    bench.worker.finish(2, text(1))
    assert sorted(bench.worker.poll()) == [1, 2]
    assert [sample.end.row for sample in bench.sink.samples] == [2]


def test_an_abort_of_an_unknown_row_does_nothing(bench):
    assert not bench.worker.abort(5)


def test_states_cannot_be_saved_outside_a_step(bench):
    with pytest.raises(StepNotBound, match="between bind and clear"):
        bench.worker.save(np.array([1]), torch.tensor([1]))


def test_a_step_that_saves_nothing_is_an_error(bench):
    with pytest.raises(StepNotSaved, match="the drafter must run in every step"), bench.worker.bound(StepMetadata(())):
        pass


def test_a_step_that_fails_raises_its_own_error_and_is_cleared(bench):
    with pytest.raises(OSError, match="lost"), bench.worker.bound(StepMetadata(())):
        raise OSError("lost")

    with pytest.raises(StepNotBound):
        bench.worker.save(np.array([1]), torch.tensor([1]))


def test_reset_forgets_open_and_waiting_samples(bench):
    bench.step((header(1), [0], [4], True), (header(2), [0], [8], True))
    bench.worker.poll()

    bench.worker.reset()

    assert bench.worker.poll() == []
    assert not bench.worker.shipper.awaits_room
