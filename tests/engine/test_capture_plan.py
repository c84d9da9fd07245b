"""Layer numbering: one definition, two conventions, everything else refused."""

from __future__ import annotations

import pytest

from drillcore_server.engine import CapturePlan
from drillcore_server.errors import ShardError
from drillcore_spec.enums import LayerConvention
from drillcore_spec.reasons import Reason

IN, OUT = LayerConvention.RESIDUAL_IN, LayerConvention.BLOCK_OUTPUT


def resolve(layers, convention=IN, final_norm=False, num_model_layers=32) -> CapturePlan:
    return CapturePlan.resolve(layers, convention, final_norm, num_model_layers, hidden_size=64)


def test_ids_keep_the_order_in_which_they_were_asked_for():
    plan = resolve([29, 2, 16])

    assert plan.ids == (29, 2, 16)
    assert [plan.column_of(i) for i in (29, 2, 16, 3)] == [0, 1, 2, None]


def test_block_output_i_is_the_residual_that_enters_the_next_block():
    assert resolve([0, 31, 4], OUT).ids == (1, 32, 5)


def test_the_final_norm_is_the_last_column():
    plan = resolve([3, 1], final_norm=True)

    assert (plan.num_columns, plan.final_norm_column) == (3, 2)
    assert plan.column_names == ("layer 3", "layer 1", "finalNorm")
    assert resolve([3, 1]).final_norm_column is None


@pytest.mark.parametrize(
    ("layers", "final_norm", "generates", "to_run"),
    [
        ([16], False, False, 16),
        ([0], False, False, 0),
        ([32, 1], False, False, 32),
        ([16], True, False, 32),
        ([16], False, True, 32),
    ],
)
def test_only_the_blocks_that_are_needed_run(layers, final_norm, generates, to_run):
    assert resolve(layers, final_norm=final_norm).num_layers_to_run(generates=generates) == to_run


def test_only_the_embedding_may_be_zero():
    assert resolve([1, 0], final_norm=True).never_zero == (True, False, True)


@pytest.mark.parametrize(
    ("layers", "convention", "message"),
    [
        ([33], IN, "must be between 0 and 32 under ResidualIn; got 33"),
        ([1, -1], IN, "must be between 0 and 32 under ResidualIn; got -1"),
        ([32], OUT, "must be between 0 and 31 under BlockOutput; got 32"),
        ([], IN, "must name at least one layer"),
    ],
)
def test_a_refusal_names_both_conventions_and_the_final_norm(layers, convention, message):
    with pytest.raises(ShardError, match=message) as refusal:
        resolve(layers, convention)

    assert refusal.value.reason is Reason.BAD_SPEC
    for word in ("L = 32", "ResidualIn", "BlockOutput", "finalNorm"):
        assert word in refusal.value.message


def test_a_duplicate_is_refused():
    with pytest.raises(ShardError, match=r"must not repeat an id; got \[2\] twice or more in \[2, 5, 2\]"):
        resolve([2, 5, 2])
