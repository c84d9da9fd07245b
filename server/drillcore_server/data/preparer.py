"""Rows to tokens, as one job asks for: encoded, masked, checked, and cut to the model's length."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drillcore.records import QuarantineEntry, QuarantineReason
from drillcore_server.data.chat_template import ChatTemplate
from drillcore_server.data.columns import check_vocabulary, read_id, read_loss_mask
from drillcore_server.data.encoders import (
    ConversationEncoder,
    EncodedRow,
    RowEncoder,
    TextEncoder,
    TokenIdsEncoder,
)
from drillcore_server.data.loss_mask import resolve_loss_mask
from drillcore_server.data.rows import PreparationCounts, PreparedRow, RowFault, SourceRow
from drillcore_server.data.tokenizer import Tokenizer
from drillcore_server.errors import ShardError
from drillcore_spec.dataset import DatasetSource
from drillcore_spec.enums import LossMaskKind, Overlong, PositionsKind
from drillcore_spec.reasons import Reason


class RowPreparer:
    """Makes tokens of rows. Not for several threads at once."""

    def __init__(
        self,
        model_folder: Path,
        source: DatasetSource,
        max_model_len: int,
        positions: PositionsKind = PositionsKind.ALL,
        *,
        chat_template: str | None = None,
        is_generating: bool = False,
    ) -> None:
        """Load the tokenizer and the chat template.

        Args:
            model_folder: where the tokenizer and config.json are.
            source: the job's dataset.
            max_model_len: longest row in tokens; less by maxTokens when tokens are generated.
            positions: a row without any selected position is quarantined.
            chat_template: Jinja text to use in place of the model's own.
            is_generating: each row is a prompt, to which the model adds tokens that count as supervised.

        Raises:
            ShardError: the tokenizer cannot be loaded, or there is no chat template where one is needed.
        """
        self.tokenizer = Tokenizer(model_folder)
        self.source = source
        self.counts = PreparationCounts()
        self._max_model_len = max_model_len
        self._is_generating = is_generating
        self._asks_at_its_end = is_generating and source.columns.messages is not None
        self._needs_selection = positions is PositionsKind.LOSS_MASK and not is_generating
        self._mask_kind = resolve_loss_mask(source)
        self._encoder = self._make_encoder(model_folder, chat_template)

    def prepare(self, row: SourceRow) -> PreparedRow | QuarantineEntry:
        """One row; see `prepare_batch`."""
        return self.prepare_batch([row])[0]

    def prepare_batch(self, rows: Sequence[SourceRow | QuarantineEntry]) -> list[PreparedRow | QuarantineEntry]:
        """The rows as tokens, or why they cannot be extracted, in the same order; quarantined rows stay so.

        Many rows at once are much faster than one after another: the tokenizer runs on all cores.

        Raises:
            ShardError: BAD_DATASET when a row is too long and the job says Fail.
        """
        results: dict[int, PreparedRow | QuarantineEntry] = {}
        drafts: list[tuple[int, SourceRow, str | None, Any]] = []
        for index, row in enumerate(rows):
            if isinstance(row, QuarantineEntry):
                results[index] = row
                continue
            row_id = None
            try:
                row_id = read_id(row.record, self.source.columns.id)
                drafts.append((index, row, row_id, self._encoder.read(row.record)))
            except RowFault as fault:
                results[index] = row.quarantined(fault, row_id)
        encoded = self._encoder.encode([content for *_, content in drafts])
        for (index, row, row_id, _), tokens in zip(drafts, encoded, strict=True):
            try:
                results[index] = self._finish(row, row_id, tokens)
            except RowFault as fault:
                results[index] = row.quarantined(fault, row_id)
        return [results[index] for index in range(len(rows))]

    def _finish(self, row: SourceRow, row_id: str | None, encoded: EncodedRow) -> PreparedRow:
        token_ids, mask = encoded.token_ids, encoded.assistant_mask
        if len(token_ids) == 0:
            raise RowFault(QuarantineReason.EMPTY, "the tokenizer makes no tokens of the row")
        if self._mask_kind is LossMaskKind.COLUMN:
            mask = read_loss_mask(row.record, self.source.columns.loss_mask or "", len(token_ids))
        check_vocabulary(token_ids, self.tokenizer.vocab_size)
        num_tokens = len(token_ids)
        kept = self._kept_tokens(row, num_tokens)
        if kept < num_tokens:
            # A copy: a view would keep the whole row alive as long as its head.
            token_ids, mask = token_ids[:kept].copy(), None if mask is None else mask[:kept].copy()
        if self._needs_selection and (mask is None or not mask.any()):
            raise RowFault(QuarantineReason.NOTHING_SELECTED, f"no token of the row's {kept} is supervised")
        self.counts.unsupervised_rows += mask is not None and not mask.any() and not self._is_generating
        return PreparedRow(row.row, row.file, row.line, row_id, token_ids, mask, num_tokens)

    def _kept_tokens(self, row: SourceRow, num_tokens: int) -> int:
        """How many tokens from the head of a row the model gets."""
        if num_tokens <= self._max_model_len:
            return num_tokens
        if self.source.overlong is Overlong.TRUNCATE and not self._asks_at_its_end:
            return self._max_model_len
        message = f"the row has {num_tokens} tokens; at most {self._max_model_len} fit"
        if self.source.overlong is Overlong.TRUNCATE:
            raise RowFault(
                QuarantineReason.TOO_LONG,
                f"{message}, and the end, which asks for the answer, cannot be cut:"
                " `spec.dataset.overlong: Skip` leaves such rows out",
            )
        if self.source.overlong is Overlong.SKIP:
            raise RowFault(QuarantineReason.TOO_LONG, message, skipped=True)
        raise ShardError(
            Reason.BAD_DATASET,
            f"{row.file}, line {row.line}: {message}, and `spec.dataset.overlong` is Fail:"
            " set it to Truncate or Skip, or raise `spec.engine.maxModelLen`",
        )

    def _check_context_size(self) -> None:
        if self.source.context_size > self._max_model_len:
            raise ShardError(
                Reason.BAD_SPEC,
                f"`spec.dataset.contextSize` must be at most {self._max_model_len}, the longest row; got"
                f" {self.source.context_size}",
            )

    def _make_encoder(self, model_folder: Path, chat_template: str | None) -> RowEncoder[Any]:
        columns = self.source.columns
        if columns.input_ids is not None:
            return TokenIdsEncoder(columns.input_ids)
        if columns.text is not None:
            self._check_context_size()
            return TextEncoder(columns.text, self.tokenizer)
        template = chat_template or self.tokenizer.chat_template
        if template is None:
            raise ShardError(
                Reason.BAD_DATASET,
                f"`spec.dataset.columns.messages` needs a chat template, and the model in {model_folder} has none:"
                " set `spec.dataset.chatTemplate`",
            )
        arguments = {name: json.loads(text) for name, text in self.source.chat_template_kwargs.items()}
        return ConversationEncoder(
            column=columns.messages or "",
            tokenizer=self.tokenizer,
            template=ChatTemplate(template, self.tokenizer.special_tokens | arguments),
            wants_mask=self._mask_kind is LossMaskKind.ASSISTANT,
            is_prompt=self._is_generating,
        )
