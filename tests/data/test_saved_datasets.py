"""Folders that the `datasets` library wrote, in the environment that has it."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drillcore_server.data import Dataset, SourceRow
from drillcore_server.errors import ShardError

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

SAVE = """
import sys
from datasets import Dataset, DatasetDict
rows = [{"messages": [{"role": "user", "content": f"ask {n}"}, {"role": "assistant", "content": f"say {n}"}],
         "score": n / 2} for n in range(3000)]
train = Dataset.from_list(rows)
train.save_to_disk(f"{sys.argv[1]}/single", num_shards=3)
DatasetDict({"train": train, "test": train.shuffle(seed=1).select(range(10))}).save_to_disk(f"{sys.argv[1]}/both")
train.to_parquet(f"{sys.argv[1]}/train-00000-of-00001.parquet")
"""


@pytest.fixture(scope="module")
def saved(peer_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    subprocess.run([peer_python, "-c", SAVE, folder], check=True, capture_output=True)
    return folder


def _asked(dataset: Dataset) -> list[str]:
    rows = [row for row in dataset.read(range(dataset.num_rows)) if isinstance(row, SourceRow)]
    return [row.record["messages"][0]["content"] for row in rows]


def test_saved_datasets_are_read_in_their_order(
    saved: Path, tmp_path: Path, opened: Callable[..., Dataset], prepared: Callable[..., list[Any]]
) -> None:
    (tmp_path / "saved").symlink_to(saved)
    columns = {"messages": "messages"}
    everything = [f"ask {n}" for n in range(3000)]
    assert _asked(opened("saved/single", columns=columns)) == everything
    assert _asked(opened("saved/both", columns=columns, split="train")) == everything
    assert _asked(opened("saved/train-00000-of-00001.parquet", columns=columns)) == everything
    shuffled = _asked(opened("saved/both", columns=columns, split="test"))
    assert len(shuffled) == 10
    assert shuffled != everything[:10]
    assert all(row.loss_mask.any() for row in prepared(pattern="saved/single", columns=columns))
    with pytest.raises(ShardError, match="test, train; none is chosen"):
        opened("saved/both", columns=columns)
