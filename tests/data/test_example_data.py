from pathlib import Path

import pytest

from drillcore_server.data import PreparedRow, RowPreparer, open_dataset
from drillcore_server.volumes import Volumes
from drillcore_spec.dataset import DatasetSource

EXAMPLES = Path(__file__).parents[2] / "examples/data"


def _prepared(folder: Path, name: str, columns: dict[str, str]) -> list[PreparedRow]:
    source = DatasetSource.model_validate({"uri": f"file://{EXAMPLES / name}", "columns": columns})
    dataset = open_dataset(source, Volumes(Path("/nowhere")))
    rows = RowPreparer(folder, source, 8192).prepare_batch(list(dataset.read(range(dataset.num_rows))))
    assert [row for row in rows if not isinstance(row, PreparedRow)] == []
    return [row for row in rows if isinstance(row, PreparedRow)]


def test_every_conversation_of_the_quickstart_can_be_extracted(tokenizer_folder: Path) -> None:
    rows = _prepared(tokenizer_folder, "quickstart.jsonl", {"messages": "messages", "id": "id"})
    assert len(rows) == 72
    assert len({row.id for row in rows}) == 72
    assert all(row.loss_mask is not None and row.loss_mask.any() for row in rows)


@pytest.mark.demo
def test_the_quickstart_has_short_and_long_rows_for_the_demo_model(demo_model: Path) -> None:
    lengths = sorted(len(r.token_ids) for r in _prepared(demo_model, "quickstart.jsonl", {"messages": "messages"}))
    assert (lengths[0], lengths[-1]) == (23, 965)
    assert sum(lengths) == 12_922


@pytest.mark.demo
def test_the_other_examples_can_be_extracted(demo_model: Path) -> None:
    assert len(_prepared(demo_model, "sentences.jsonl", {"text": "text", "id": "id"})) == 12
    columns = {"input_ids": "input_ids", "loss_mask": "loss_mask", "id": "id"}
    rows = _prepared(demo_model, "token_ids.jsonl", columns)
    assert all(row.loss_mask is not None and 0 < row.loss_mask.sum() < len(row.token_ids) for row in rows)
