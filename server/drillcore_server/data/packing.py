"""Texts packed into contexts of exactly one length, as sparse autoencoders are trained on.

    BOS text BOS text BOS te|xt BOS text BOS text BOS|...
    '------ context 0 -----' '------ context 1 -----'  the tail that fills no context is dropped and counted

Contexts, not texts, are the rows of the output: context n of shard i is row i * 2^40 + n. A shard packs its own
texts from the first one each time, so that a context has the same tokens in every attempt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from drillcore.records import QuarantineEntry
from drillcore_server.data.columns import check_vocabulary, read_text
from drillcore_server.data.rows import PreparedRow, RowFault, SourceRow
from drillcore_server.data.tokenizer import Tokenizer

CONTEXT_ROWS_PER_SHARD = 1 << 40


class ContextPacker:
    """Packs the texts of one shard, in order. Not for several threads at once."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        column: str,
        context_size: int,
        shard: int,
        skip: NDArray[np.int64] | None = None,
    ) -> None:
        """Start with an empty context.

        Args:
            tokenizer: the model's; its BOS token, or else its EOS token, stands before each text.
            column: where a row's text is.
            context_size: tokens of a context.
            shard: index of the shard.
            skip: sorted rows of contexts that are not wanted any more.

        Raises:
            ShardError: BAD_DATASET when the tokenizer has neither token.
        """
        self._tokenizer = tokenizer
        self._column = column
        self._context_size = context_size
        self._next_row = shard * CONTEXT_ROWS_PER_SHARD
        self._skip = np.empty(0, dtype=np.int64) if skip is None else skip
        self._separator = np.array([tokenizer.separator_id()], dtype=np.int64)
        self._pending = np.empty(0, dtype=np.int64)
        self._first_source: SourceRow | None = None

    @property
    def num_pending_tokens(self) -> int:
        """Tokens that wait for more; dropped when nothing comes."""
        return len(self._pending)

    def prepare_batch(self, rows: Sequence[SourceRow | QuarantineEntry]) -> list[PreparedRow | QuarantineEntry]:
        """The contexts that these texts complete, and the texts that cannot be used."""
        results: list[PreparedRow | QuarantineEntry] = []
        texts: list[tuple[SourceRow, str]] = []
        for row in rows:
            if isinstance(row, QuarantineEntry):
                results.append(row)
                continue
            try:
                texts.append((row, read_text(row.record, self._column)))
            except RowFault as fault:
                results.append(row.quarantined(fault))
        encoded = self._tokenizer.encode_plain([text for _, text in texts])
        for (row, _), token_ids in zip(texts, encoded, strict=True):
            try:
                check_vocabulary(token_ids, self._tokenizer.vocab_size)
            except RowFault as fault:
                results.append(row.quarantined(fault))
            else:
                results.extend(self._add(row, token_ids))
        return results

    def _add(self, source: SourceRow, token_ids: NDArray[np.int64]) -> Iterator[PreparedRow]:
        """The contexts that one text completes."""
        has_separator = len(token_ids) > 0 and token_ids[0] == self._separator[0]
        lead = self._separator[:0] if has_separator else self._separator
        tokens = np.concatenate((self._pending, lead, token_ids))
        first_source = self._first_source or source
        num_contexts = len(tokens) // self._context_size
        for index in range(num_contexts):
            start = index * self._context_size
            if not self._is_skipped():
                context = tokens[start : start + self._context_size].copy()
                place = first_source if index == 0 else source
                yield PreparedRow(self._next_row, place.file, place.line, None, context, None, len(context))
            self._next_row += 1
        self._pending = tokens[num_contexts * self._context_size :].copy()
        if len(self._pending) == 0:
            self._first_source = None
        else:
            self._first_source = source if num_contexts else first_source

    def _is_skipped(self) -> bool:
        place = int(np.searchsorted(self._skip, self._next_row))
        return place < len(self._skip) and int(self._skip[place]) == self._next_row
