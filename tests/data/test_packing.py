from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore.records import QuarantineEntry, QuarantineReason
from drillcore_server.data import PreparedRow, RowPreparer, SourceRow, prepared_batches
from drillcore_server.data.packing import CONTEXT_ROWS_PER_SHARD, ContextPacker
from drillcore_server.data.tokenizer import Tokenizer
from drillcore_server.errors import ShardError
from drillcore_spec.dataset import DatasetSource

WORDS = ["the", " sea", " rain", " 🎉", "\n", "x" * 30]


def _rows(texts: list[Any]) -> list[SourceRow]:
    return [SourceRow(n, "rows.jsonl", n + 1, {"text": text}, 1) for n, text in enumerate(texts)]


def _contexts(packer: ContextPacker, texts: list[str], batch_size: int = 3) -> list[PreparedRow]:
    rows = _rows(texts)
    batches = [packer.prepare_batch(rows[start : start + batch_size]) for start in range(0, len(rows), batch_size)]
    return [row for batch in batches for row in batch if isinstance(row, PreparedRow)]


@given(
    texts=st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map("".join), max_size=8),
    context_size=st.integers(1, 20),
    batch_size=st.integers(1, 4),
)
def test_contexts_are_the_joined_texts_cut_at_exact_lengths(
    tokenizer: Tokenizer, texts: list[str], context_size: int, batch_size: int
) -> None:
    packer = ContextPacker(tokenizer, "text", context_size, shard=3)
    contexts = _contexts(packer, texts, batch_size)
    joined = [int(token) for text in texts for token in tokenizer.encode_texts([text])[0]]
    assert joined.count(0) == len(texts)
    got = [token for context in contexts for token in context.token_ids.tolist()]
    assert all(len(context.token_ids) == context_size for context in contexts)
    assert got == joined[: len(got)]
    assert packer.num_pending_tokens == len(joined) - len(got) < context_size
    assert [context.row for context in contexts] == [3 * CONTEXT_ROWS_PER_SHARD + n for n in range(len(contexts))]


def test_a_text_that_brings_its_own_bos_gets_no_second_one(tokenizer: Tokenizer) -> None:
    plain = _contexts(ContextPacker(tokenizer, "text", 4, 0), ["the sea", "the sea"])
    marked = _contexts(ContextPacker(tokenizer, "text", 4, 0), ["<s>the sea", "<s>the sea"])
    assert [c.token_ids.tolist() for c in plain] == [c.token_ids.tolist() for c in marked]


def test_a_context_is_placed_at_the_text_that_it_begins_in(tokenizer: Tokenizer) -> None:
    one = len(tokenizer.encode_texts(["the sea"])[0])
    contexts = _contexts(ContextPacker(tokenizer, "text", one + 1, 0), ["the sea"] * (one + 1))
    assert [context.line for context in contexts] == list(range(1, one + 1))


def test_skipped_contexts_leave_the_others_as_they_were(tokenizer: Tokenizer) -> None:
    texts = ["the sea is blue"] * 9
    whole = _contexts(ContextPacker(tokenizer, "text", 5, shard=1), texts)
    skip = np.array([whole[0].row, whole[3].row, whole[4].row, whole[-1].row + 5])
    rest = _contexts(ContextPacker(tokenizer, "text", 5, shard=1, skip=skip), texts)
    kept = [context for context in whole if context.row not in skip]
    assert [(c.row, c.token_ids.tolist()) for c in rest] == [(c.row, c.token_ids.tolist()) for c in kept]


def test_texts_that_cannot_be_used_are_quarantined_and_the_others_packed(tokenizer: Tokenizer) -> None:
    packer = ContextPacker(tokenizer, "text", 2, 0)
    results = packer.prepare_batch(_rows(["the sea", None, "", "the sea"]))
    faults = [(r.row, r.reason) for r in results if isinstance(r, QuarantineEntry)]
    assert faults == [(1, QuarantineReason.BAD_COLUMN), (2, QuarantineReason.EMPTY)]
    packed = [token for r in results if isinstance(r, PreparedRow) for token in r.token_ids.tolist()]
    assert packed == [*tokenizer.encode_texts(["the sea"])[0]] * 2


def test_a_shard_packs_its_own_rows_and_counts_its_tail(
    tokenizer_folder: Path, tokenizer: Tokenizer, source_of: Callable[..., DatasetSource],
    opened: Callable[..., Any], write_rows: Callable[..., Path],
) -> None:  # fmt: skip
    write_rows([{"text": "the sea"}] * 10)
    dataset, preparer = opened(), RowPreparer(tokenizer_folder, source_of(context_size=4), 16)
    rows = dataset.shard_rows(1, 2)
    batches = list(prepared_batches(dataset, preparer, rows, shard=1))
    contexts = [row for batch in batches for row in batch]
    num_tokens = len(rows) * len(tokenizer.encode_texts(["the sea"])[0])
    assert [row.row for row in contexts] == [CONTEXT_ROWS_PER_SHARD + n for n in range(num_tokens // 4)]
    assert contexts[0].line == 6
    assert preparer.counts.dropped_tokens == num_tokens % 4


def test_a_context_must_fit_the_model(tokenizer_folder: Path, source_of: Callable[..., DatasetSource]) -> None:
    with pytest.raises(ShardError, match=r"`spec\.dataset\.contextSize` must be at most 16.*got 17"):
        RowPreparer(tokenizer_folder, source_of(context_size=17), 16)
