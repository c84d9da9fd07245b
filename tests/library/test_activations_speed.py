"""`activations` beside a plain sequential read of the same files, in alternation in this process."""

import statistics
import time

import numpy as np
import pytest

import drillcore
from drillcore.dtypes import StoreDType
from drillcore.part_writer import PartWriter

pytestmark = pytest.mark.long

BATCH = 1024
NUM_ROUNDS = 9
TOKENS = 512


@pytest.fixture
def root(make):
    """384 MiB: four layers of 1,024 elements, of which one is read."""
    maker = make(layers=(0, 1, 2, 3), final_norm=False, hidden_size=1024, store_dtype=StoreDType.BF16)
    maker.claim()
    shard = maker.layout.shard(0)
    shard.directory.mkdir(parents=True)
    parts = []
    states = np.ones((TOKENS, 4, 1024), np.uint16)
    for number in range(4):
        writer = PartWriter(shard.part(number, "00000001"), maker.schema)
        for row in range(number * 24, number * 24 + 24):
            writer.append(states.reshape(-1).view(np.uint8).data)
            writer.end_sample(end_of(maker, row))
        parts.append(writer.close())
    maker.journal(parts)
    return maker.root


def end_of(maker, row):
    end = maker.row(row).end
    tokens = np.arange(TOKENS)
    return type(end)(row, None, tokens, TOKENS, TOKENS, None, TOKENS, None, None, np.ones(4), np.ones(4))


def read_plainly(root):
    for path in sorted(root.rglob("part-*")):
        with path.open("rb", buffering=0) as file:
            while file.readinto(np.empty(BATCH * 1024 * 2, np.uint8).data):
                pass


def read_epoch(root, shuffle_buffer):
    for _ in drillcore.open(root, allow_incomplete=True).activations(2, BATCH, shuffle_buffer):
        pass


def costs_of(way):
    """Seconds by the wall clock and of CPU time: other work on the machine weighs differently on each."""
    wall, cpu = time.perf_counter(), time.process_time()
    way()
    return time.perf_counter() - wall, time.process_time() - cpu


@pytest.mark.parametrize(("shuffle_buffer", "bound"), [(0, 0.8), (8192, 0.5)], ids=["in order", "shuffled"])
def test_states_per_second_are_near_those_of_a_plain_read(root, shuffle_buffer, bound):
    rounds = [
        (costs_of(lambda: read_plainly(root)), costs_of(lambda: read_epoch(root, shuffle_buffer)))
        for _ in range(NUM_ROUNDS)
    ]
    plain_costs, costs = zip(*rounds, strict=True)
    ratios = [
        statistics.median(plain) / statistics.median(ours)
        for plain, ours in zip(zip(*plain_costs, strict=True), zip(*costs, strict=True), strict=True)
    ]
    assert max(ratios) >= bound, f"of the wall clock's and the CPU time's ratios {ratios} one must be {bound}"
