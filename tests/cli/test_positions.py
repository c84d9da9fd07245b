"""Positions from the job file to the output: each kind is a selection of All, and takes the bytes of what it keeps."""

from __future__ import annotations

import json

import numpy as np
import pytest

import drillcore

pytestmark = pytest.mark.e2e

NUM_ROWS = 40
SHARED_TOKENS = 70
"""Rows begin alike for more than a block, so that prefixes are hit."""
STATE_BYTES = 4 * 64 * 4
"""Columns, hidden, Float32."""
KINDS = {
    "Last": {},
    "Mean": {},
    "LossMask": {},
    "Window": {"window": {"start": 60, "end": 150}},
    "Stride": {"stride": {"step": 16, "offset": 5}},
}


@pytest.fixture(scope="module")
def place_of(make_workplace, tmp_path_factory):
    """`place_of("Mean")`: the job of that kind over the same rows of 1 to 217 tokens; three pairs of them are equal."""
    rng = np.random.default_rng(0)
    shared = rng.integers(0, 256, SHARED_TOKENS).tolist()
    lines = []
    for row in range(NUM_ROWS):
        num_tokens = 1 + row * 6 if row < 37 else 1 + (row - 7) * 6
        ids = [*shared, *np.random.default_rng(num_tokens).integers(0, 256, 200).tolist()][:num_tokens]
        lines.append(json.dumps({"ids": ids, "mask": [int(p % 3 == 1) for p in range(num_tokens)]}))

    def make(kind):
        place = make_workplace(tmp_path_factory.mktemp(kind), lines)
        place.set("dataset.columns", {"inputIds": "ids", "lossMask": "mask"})
        place.set("extraction.positions", kind)
        for field, value in KINDS.get(kind, {}).items():
            place.set(f"extraction.{field}", value)
        place.set("failurePolicy.maxQuarantinedPercent", 50)
        return place

    return make


@pytest.fixture(scope="module")
def whole(place_of):
    """The output of positions All."""
    place = place_of("All")
    summary = place.run_json()
    assert summary["code"] == 0, summary
    return drillcore.open(place.output)


def selected(kind, sample):
    """Indices of the tokens whose states a kind keeps."""
    count = len(sample.token_ids)
    return {
        "Last": np.array([count - 1]),
        "Mean": np.arange(count),
        "LossMask": np.flatnonzero(sample.loss_mask),
        "Window": np.arange(count)[60:150],
        "Stride": np.arange(count)[5::16],
    }[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_a_selection_of_all_states_at_the_price_of_what_it_keeps(place_of, whole, row_criterion, kind):
    place = place_of(kind)

    counts = place.run_counts()
    estimate = place.estimate()

    output = drillcore.open(place.output)
    expected = {sample.row: selected(kind, sample) for sample in whole}
    assert output.rows.tolist() == [row for row, positions in expected.items() if len(positions)]
    for sample in output:
        full, positions = whole.by_row(sample.row), expected[sample.row]
        states = full.hidden_states[positions]
        if kind == "Mean":
            states, positions = states.mean(axis=0, dtype=np.float64, keepdims=True), None
        row_criterion(np.asarray(sample.hidden_states), states)
        assert sample.token_ids.tolist() == full.token_ids.tolist()
        assert positions is None or sample.positions.tolist() == positions.tolist()
    assert counts["states"] == sum(len(sample.hidden_states) for sample in output)
    assert drillcore.verify(place.output).ok

    on_disk = _part_bytes(place.output)
    saved_states = whole.counts.states - counts["states"]
    assert _part_bytes(whole.path) - on_disk == pytest.approx(saved_states * STATE_BYTES, rel=0.01)
    assert counts["bytes"] == on_disk
    assert estimate.bytes == pytest.approx(on_disk, rel=0.01)
    assert (estimate.states, estimate.rows_out) == (counts["states"], counts["rowsOut"])


def _part_bytes(output):
    return sum(path.stat().st_size for path in output.glob("shards/*/part-*.safetensors"))
