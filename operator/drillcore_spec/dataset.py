"""`spec.dataset`: the rows that go through the model."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import AfterValidator, Field

from drillcore_spec.base import SpecModel
from drillcore_spec.enums import DatasetFormat, LossMaskKind, Overlong
from drillcore_spec.forms import (
    ColumnName,
    FileUri,
    LongText,
    RowCount,
    ShortText,
    SourceUri,
    TokenCount,
)
from drillcore_spec.rules import Rule
from drillcore_spec.uris import no_parent_folder


def _json_text(text: str) -> str:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f'expected JSON text, such as "false" or "\\"high\\""; got {text[:60]!r}') from None
    return text


class Columns(SpecModel):
    """Which columns (keys of a JSON row) hold what. Exactly one of text, messages and inputIds is set."""

    text: ColumnName | None = None
    """Column with plain text."""
    messages: ColumnName | None = None
    """Column with a conversation: a list of role/content or from/value objects, rendered by the chat
    template.
    """
    input_ids: ColumnName | None = None
    """Column with token ids, used as they are."""
    loss_mask: ColumnName | None = None
    """Column with one 0 or 1 for each token."""
    id: ColumnName | None = None
    """Column with the row's own id, kept in the output."""

    rules = (
        Rule(
            cel="[has(self.text), has(self.messages), has(self.inputIds)].filter(set, set).size() == 1",
            holds=lambda self: [self.text, self.messages, self.input_ids].count(None) == 2,
            expected="exactly one of text, messages and inputIds",
        ),
    )


class DatasetSource(SpecModel):
    """Where the rows come from, and how a row becomes tokens."""

    uri: SourceUri
    """file:// or pvc://CLAIM/PATH, where the path may hold `*`, `?` and `**`; or hf://ORG/NAME on a hub."""
    format: DatasetFormat = DatasetFormat.AUTO
    """File format; Auto goes by the file names."""
    split: ShortText | None = None
    """Split of a dataset that has several, such as train."""
    max_samples: RowCount | None = None
    """Only the first rows are used, over all files in the order of their paths. Default: all rows."""
    columns: Columns
    """Which columns hold what."""
    overlong: Overlong = Overlong.TRUNCATE
    """A row with more tokens than engine.maxModelLen: Truncate keeps its head, Skip leaves it out, Fail
    ends the job. A conversation that is to be answered is never cut: Truncate quarantines it.
    """
    context_size: TokenCount = 0
    """More than 0: text is joined with BOS tokens and cut into contexts of exactly this many tokens, each a
    row.
    """
    chat_template: FileUri | None = None
    """Jinja file used in place of the tokenizer's chat template."""
    chat_template_kwargs: dict[ShortText, Annotated[LongText, AfterValidator(_json_text)]] = Field(
        default_factory=dict, max_length=32
    )
    """Arguments for the chat template, each as JSON text: {enable_thinking: "false"}."""
    loss_mask: LossMaskKind = LossMaskKind.AUTO
    """Column: from columns.lossMask. Assistant: the assistant's turns, by the template's generation marks
    or, without them, by their place in the rendered text. Auto: Column if columns.lossMask is set, else
    Assistant for messages, else None.
    """

    rules = (
        no_parent_folder("uri"),
        no_parent_folder("chat_template"),
        Rule(
            cel="self.lossMask != 'Column' || has(self.columns.lossMask)",
            holds=lambda self: self.loss_mask is not LossMaskKind.COLUMN or self.columns.loss_mask is not None,
            expected="columns.lossMask to be set when lossMask is Column",
            field=("columns",),
        ),
        Rule(
            cel="!has(self.columns.lossMask) || self.lossMask in ['Auto', 'Column']",
            holds=lambda self: (
                self.columns.loss_mask is None or self.loss_mask in (LossMaskKind.AUTO, LossMaskKind.COLUMN)
            ),
            expected="lossMask Auto or Column when columns.lossMask is set",
            field=("lossMask",),
        ),
        Rule(
            cel="self.lossMask != 'Assistant' || has(self.columns.messages)",
            holds=lambda self: self.loss_mask is not LossMaskKind.ASSISTANT or self.columns.messages is not None,
            expected="columns.messages to be set when lossMask is Assistant",
            field=("lossMask",),
        ),
        Rule(
            cel="!has(self.chatTemplate) || has(self.columns.messages)",
            holds=lambda self: self.chat_template is None or self.columns.messages is not None,
            expected="columns.messages to be set when chatTemplate is",
            field=("chatTemplate",),
        ),
        Rule(
            cel="!has(self.chatTemplateKwargs) || self.chatTemplateKwargs.size() == 0 || has(self.columns.messages)",
            holds=lambda self: not self.chat_template_kwargs or self.columns.messages is not None,
            expected="columns.messages to be set when chatTemplateKwargs is",
            field=("chatTemplateKwargs",),
        ),
        Rule(
            cel="self.contextSize == 0 || has(self.columns.text) && !has(self.columns.lossMask)",
            holds=lambda self: (
                self.context_size == 0 or (self.columns.text is not None and self.columns.loss_mask is None)
            ),
            expected="columns.text, and no columns.lossMask, when contextSize is more than 0",
            field=("contextSize",),
        ),
    )
