"""Conversations to text by a chat template, and where in that text the assistant speaks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError

from drillcore.records import QuarantineReason
from drillcore_server.data.conversation import ASSISTANT, Message
from drillcore_server.data.rows import RowFault, shown
from drillcore_server.errors import ShardError
from drillcore_spec.reasons import Reason

Span = tuple[int, int]
"""First character and one past the last, in the rendered text."""

_GENERATION_MARK = re.compile(r"\{%-?\s*generation\s*-?%\}")
_TEMPLATE_FAILURES = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    RecursionError,
)
"""What a template, which is a program of somebody else, raises on data that it does not expect."""


class ChatTemplate:
    """A chat template with its arguments, in transformers' Jinja sandbox."""

    def __init__(self, source: str, variables: Mapping[str, Any]) -> None:
        """Compile the template.

        Args:
            source: Jinja text.
            variables: special tokens by name, and the user's own arguments.

        Raises:
            ShardError: BAD_DATASET when the source is not valid Jinja.
        """
        self._source = source
        self._variables = dict(variables)
        self._has_marks = _GENERATION_MARK.search(source) is not None
        try:
            self._render([{"role": "user", "content": "-"}])
        except TemplateSyntaxError as error:
            raise ShardError(
                Reason.BAD_DATASET, f"the chat template is not valid Jinja: line {error.lineno}: {error.message}"
            ) from error
        except _TEMPLATE_FAILURES:
            # It compiles; whether it takes a conversation is for each row to find out.
            return

    def render(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = False, continue_final_message: bool = False
    ) -> str:
        """The text of a conversation.

        Args:
            messages: the turns.
            add_generation_prompt: end with what opens the assistant's next turn.
            continue_final_message: end with the last turn's own text, without what closes the turn.

        Raises:
            RowFault: BAD_COLUMN when the template refuses it.
        """
        try:
            return self._render(
                messages,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
            )[0]
        except _TEMPLATE_FAILURES as error:
            raise _refused(error) from None

    def render_with_spans(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = False
    ) -> tuple[str, list[Span]]:
        """The text of a conversation, and the ascending spans of its assistant turns.

        The template's own `{% generation %}` marks count where it has them. Else a turn begins where the
        generation prompt before it ends and ends where the text of the conversation up to it ends, so that the
        end-of-turn token is in it. An assistant turn that opens the conversation answers nothing: it has no span.
        (speculators 0.9, data_generation/preprocessing.py, `_render_boundary_rows`, draws the same border.)

        Raises:
            RowFault: BAD_COLUMN when the template refuses the conversation, or rewrites a turn past recognition.
        """
        if not self._has_marks:
            text = self.render(messages, add_generation_prompt=add_generation_prompt)
            return text, _TurnFinder(self, messages, text).spans()
        try:
            text, spans = self._render(messages, add_generation_prompt=add_generation_prompt, mark_spans=True)
        except _TEMPLATE_FAILURES as error:
            raise _refused(error) from None
        return text, [(start, end) for start, end in spans if end > start]

    def _render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        mark_spans: bool = False,
    ) -> tuple[str, list[Span]]:
        from transformers.utils.chat_template_utils import render_jinja_template

        texts, spans = render_jinja_template(
            conversations=[messages],
            chat_template=self._source,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            return_assistant_tokens_mask=mark_spans,
            **self._variables,
        )
        return texts[0], spans[0] if mark_spans else []


class _TurnFinder:
    """Finds the assistant turns of one conversation in its rendered text."""

    def __init__(self, template: ChatTemplate, messages: Sequence[Message], text: str) -> None:
        self._template = template
        self._messages = messages
        self._text = text

    def spans(self) -> list[Span]:
        """The span of each assistant turn but an opening one, in order."""
        spans: list[Span] = []
        for index, message in enumerate(self._messages):
            if message["role"] == ASSISTANT and index > 0:
                spans.append(self._span(index, after=spans[-1][1] if spans else 0))
        return spans

    def _span(self, index: int, after: int) -> Span:
        prompt = self._template.render(self._messages[:index], add_generation_prompt=True)
        is_last = index == len(self._messages) - 1
        through = self._text if is_last else self._template.render(self._messages[: index + 1])
        start = self._border(index, prompt, through)
        if self._text.startswith(through):
            return start, len(through)
        return self._rewritten_span(index, prompt, through, start, after)

    def _border(self, index: int, prompt: str, through: str) -> int:
        """Where the turn begins in the text that ends with it."""
        if through.startswith(prompt):
            return len(prompt)
        # The generation prompt opens with something else than the recorded turn: an empty reasoning block.
        history = self._template.render(self._messages[:index])
        border = _common_prefix_length(prompt, through)
        if border < len(history) or not through.startswith(history):
            raise self._lost(index)
        return border

    def _rewritten_span(self, index: int, prompt: str, through: str, start: int, after: int) -> Span:
        """The span in a text whose later turns changed this one or those before.

        Templates drop the reasoning of earlier turns (Qwen3), or move the system prompt to the last user turn
        (Mistral). What stays is the message before, the generation prompt, what was said, and how a turn ends.
        """
        asked = self._messages[index - 1]["content"].strip()
        said = self._messages[index]["content"].rpartition("</think>")[2].strip()
        if not asked or asked not in prompt or not said or said not in through:
            raise self._lost(index)
        lead = re.escape(prompt[prompt.rfind(asked) :])
        as_it_was = re.escape(through[start:])
        without_reasoning = r"\s*" + re.escape(through[through.rfind(said) :])
        # The turns before this one are found, so that the first place that fits is the right one.
        found = re.compile(f"{lead}({as_it_was}|{without_reasoning})").search(self._text, after)
        if found is None:
            raise self._lost(index)
        return found.span(1)

    def _lost(self, index: int) -> RowFault:
        return RowFault(
            QuarantineReason.BAD_COLUMN,
            f"message {index}, an assistant turn, is not found in the rendered text: the chat template rewrites it."
            " Use a template with {% generation %} marks, or lossMask None",
        )


def _refused(error: Exception) -> RowFault:
    return RowFault(QuarantineReason.BAD_COLUMN, f"the chat template refuses the conversation: {shown(str(error))}")


def _common_prefix_length(first: str, second: str) -> int:
    for length, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return length
    return min(len(first), len(second))
