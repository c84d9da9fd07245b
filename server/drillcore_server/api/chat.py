"""Messages to token ids, by the model's chat template."""

from __future__ import annotations

from drillcore_server.api.errors import BadRequest
from drillcore_server.api.fields import TokenIds
from drillcore_server.api.prompts import in_thread_if_long
from drillcore_server.api.protocol import ChatRequest
from drillcore_server.data.chat_template import ChatTemplate
from drillcore_server.data.conversation import read_messages
from drillcore_server.data.rows import RowFault
from drillcore_server.data.tokenizer import Tokenizer


class ChatRenderer:
    """Lives in the event loop; long conversations are rendered in threads."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._plain: ChatTemplate | None = None

    async def token_ids(self, asked: ChatRequest) -> TokenIds:
        """The tokens of a conversation, not cut.

        Raises:
            BadRequest: the messages are none, or the template refuses them.
        """
        return await in_thread_if_long(_text_length(asked), lambda: self._token_ids(asked))

    def _token_ids(self, asked: ChatRequest) -> TokenIds:
        try:
            text = self._template(asked).render(
                read_messages({"messages": asked.messages}, "messages"),
                add_generation_prompt=asked.add_generation_prompt,
                continue_final_message=asked.continue_final_message,
            )
            text.encode()
        except RowFault as fault:
            raise BadRequest(fault.message, param="messages") from None
        except UnicodeEncodeError:
            raise BadRequest("must be valid Unicode", param="messages") from None
        if asked.add_special_tokens:
            return self._tokenizer.encode_texts([text])[0]
        return self._tokenizer.encode_rendered([text])[0].token_ids

    def _template(self, asked: ChatRequest) -> ChatTemplate:
        """The template with the request's own arguments, which are few and rare."""
        arguments = dict(asked.chat_template_kwargs or {})
        if asked.tools:
            arguments["tools"] = asked.tools
        if arguments:
            return self._with(arguments)
        if self._plain is None:
            self._plain = self._with({})
        return self._plain

    def _with(self, arguments: dict[str, object]) -> ChatTemplate:
        source = self._tokenizer.chat_template
        if source is None:
            raise BadRequest("the model has no chat template: send completions", param="messages")
        return ChatTemplate(source, self._tokenizer.special_tokens | arguments)


def _text_length(asked: ChatRequest) -> int:
    """About how many characters the messages have."""
    return sum(len(str(message.get("content", ""))) for message in asked.messages)
