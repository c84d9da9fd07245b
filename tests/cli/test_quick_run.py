"""The shortest whole way: one job, one shard, read back and compared with transformers."""

from __future__ import annotations

import numpy as np

import drillcore


def test_a_job_ends_with_the_states_that_transformers_computes(
    workplace, tiny_model_folder, reference_states, row_criterion
):
    summary = workplace.run_json()

    assert summary["code"] == 0, summary
    output = drillcore.open(workplace.output)
    assert len(output) == 39
    for sample in output:
        states = reference_states(tiny_model_folder(), sample.token_ids.tolist())
        row_criterion(np.asarray(sample.layer(2)), states.residual[2])
