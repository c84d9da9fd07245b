"""Whatever JSON a row holds, it becomes tokens or a line of the quarantine file: nothing else, never an exception."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore.records import QuarantineEntry
from drillcore_server.data import PreparedRow, RowPreparer, SourceRow
from drillcore_spec.dataset import DatasetSource
from drillcore_spec.enums import PositionsKind

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.sampled_from(["", " ", "a", "the sea", "<s>", "\x00", "\ud800", "日本 🎉", "user", "assistant", "gpt", "text"])
)
KEYS = st.sampled_from(["role", "content", "from", "value", "type", "text", "tool_calls", "thinking", "name"])
VALUES = st.recursive(SCALARS, lambda v: st.lists(v, max_size=4) | st.dictionaries(KEYS, v, max_size=3), max_leaves=8)
TURNS = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system", "tool"]) | VALUES, "content": VALUES},
    optional={"tool_calls": VALUES, "reasoning_content": VALUES, "name": VALUES},
)
IDS = st.lists(st.integers(-1, 1001), max_size=12)
RECORDS = st.fixed_dictionaries(
    {},
    optional={
        "text": VALUES,
        "messages": st.lists(TURNS, max_size=4) | VALUES,
        "ids": IDS | VALUES,
        "mask": st.lists(st.integers(-1, 2), max_size=12) | VALUES,
        "id": VALUES,
    },
)
COLUMNS = [
    {"text": "text", "id": "id"},
    {"input_ids": "ids", "loss_mask": "mask", "id": "id"},
    {"messages": "messages", "id": "id"},
]


@pytest.fixture(scope="module")
def preparers(tokenizer_folder: Path, template_text: Callable[[str], str]) -> list[RowPreparer]:
    made = []
    for columns in COLUMNS:
        source = DatasetSource.model_validate({"uri": "file:///rows.jsonl", "columns": columns})
        for name in ("llama3", "qwen3", "mistral", "marked") if "messages" in columns else ("llama3",):
            template = template_text(name)
            made.append(RowPreparer(tokenizer_folder, source, 8, PositionsKind.LOSS_MASK, chat_template=template))
            made.append(RowPreparer(tokenizer_folder, source, 8, chat_template=template, is_generating=True))
    return made


@given(records=st.lists(RECORDS, max_size=4))
def test_any_record_is_prepared_or_quarantined(preparers: list[RowPreparer], records: list[dict[str, Any]]) -> None:
    rows = [SourceRow(n, "rows.jsonl", n + 1, record, 1) for n, record in enumerate(records)]
    for preparer in preparers:
        results = preparer.prepare_batch(rows)
        assert [result.row for result in results] == list(range(len(rows)))
        for result in results:
            if isinstance(result, PreparedRow):
                assert 1 <= len(result.token_ids) <= min(8, result.original_tokens)
                assert 0 <= result.token_ids.min() <= result.token_ids.max() < 1000
                assert result.loss_mask is None or result.loss_mask.shape == result.token_ids.shape
            else:
                assert isinstance(result, QuarantineEntry)
                assert len(json.dumps(result.to_json(), ensure_ascii=False).encode()) < 3000
