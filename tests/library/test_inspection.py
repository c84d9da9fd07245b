import json

import numpy as np

import drillcore
from drillcore.inspection import TokenHistogram


def test_a_finished_output_at_a_glance(make):
    maker = make(shard_count=2)
    maker.shard([range(4), [4, 6]], quarantined=[5])
    maker.shard([range(7, 9)], shard=1)
    report = drillcore.inspect(maker.root)
    assert report.complete
    assert [(shard.index, shard.committed, shard.parts) for shard in report.shards] == [(0, True, 2), (1, True, 1)]
    assert report.counts.rows_in == 9
    assert report.quarantine == {"Empty": 1}
    assert report.manifest == maker.manifest
    assert list(report.layer_stats) == ["2", "0", "finalNorm"]
    assert sum(report.tokens_per_row.rows) == 8
    assert report.tokens_per_row.longest == max(len(sample.token_ids) for sample in drillcore.open(maker.root))


def test_an_unfinished_output_shows_what_is_there(make):
    maker = make(shard_count=3)
    maker.shard([range(4)], shard=1, quarantined=[4], commit=False)
    report = drillcore.inspect(maker.root)
    assert not report.complete
    assert [(shard.index, shard.committed) for shard in report.shards] == [(1, False)]
    assert (report.counts.rows_out, report.quarantine) == (4, {"Empty": 1})


def test_the_report_is_json(maker):
    maker.shard([range(4)])
    report = json.loads(json.dumps(drillcore.inspect(maker.root).to_json(), allow_nan=False))
    assert report["counts"]["rowsOut"] == 4
    assert report["manifest"]["layers"] == [2, 0]
    assert set(report["tokensPerRow"]) == {"edges", "rows", "median", "longest"}


def test_histogram_bins_are_powers_of_two():
    histogram = TokenHistogram.of(np.array([3, 4, 7, 8, 100]))
    assert histogram.edges == (2, 4, 8, 16, 32, 64, 128)
    assert histogram.rows == (1, 2, 1, 0, 0, 1)
    assert (histogram.median, histogram.longest) == (7.0, 100)
    assert TokenHistogram.of(np.array([], np.int64)).rows == ()
