"""docs/reading.md: its code runs, one block after another."""

import re
from pathlib import Path

from drillcore.dtypes import StoreDType

DOCUMENT = Path(__file__).parents[2] / "docs" / "reading.md"
BLOCKS = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)


def test_every_block_runs_and_does_what_it_says(make, monkeypatch):
    maker = make(layers=(2, 16), store_dtype=StoreDType.BF16)
    maker.shard([range(0, 40, 2), range(1, 40, 2)], loss_mask=True)
    monkeypatch.chdir(maker.root.parent)
    steps = []
    names = {"train_step": lambda batch, scale: steps.append((batch.shape, scale))}
    assert len(BLOCKS) == 3
    for block in BLOCKS:
        # Worker processes would take longer to start than all else.
        exec(block.replace("num_workers=4", "num_workers=0"), names)
    output = names["output"]
    wanted = sum(int((sample.token_ids > 1).sum()) for sample in output)
    assert [shape for shape, _ in steps] == [(wanted, 8)]
    assert steps[0][1] == output.layer_stats["16"].mean_norm
    assert list(names["batch"].shape) == [wanted, 8]
