from collections.abc import Callable

import pytest

from drillcore.records import QuarantineReason
from drillcore_server.data.chat_template import ChatTemplate
from drillcore_server.data.conversation import Message
from drillcore_server.data.rows import RowFault
from drillcore_server.errors import ShardError

TemplateText = Callable[[str], str]
VARIABLES = {"bos_token": "<s>", "eos_token": "</s>"}
THINKING = {"reasoning_content": "hm", "thinking": "hm"}


def _turns(*texts: str, system: str | None = None) -> list[Message]:
    roles = ("user", "assistant")
    turns = [{"role": roles[index % 2], "content": text} for index, text in enumerate(texts)]
    return turns if system is None else [{"role": "system", "content": system}, *turns]


def _supervised(source: str, messages: list[Message], **variables: object) -> list[str]:
    text, spans = ChatTemplate(source, VARIABLES | variables).render_with_spans(messages)
    assert all(0 <= start < end <= len(text) for start, end in spans)
    return [text[start:end] for start, end in spans]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("llama3", ["b<|eot_id|>", "b<|eot_id|>"]),
        ("qwen3", ["b<|im_end|>\n", "<think>\n\n</think>\n\n b <|im_end|>\n"]),
        ("mistral", [" b</s>", " b</s>"]),
        ("marked", ["b<|im_end|>", " b <|im_end|>"]),
    ],
)
def test_each_assistant_turn_is_found_with_its_end(
    template_text: TemplateText, template: str, expected: list[str]
) -> None:
    assert _supervised(template_text(template), _turns("a", "b", "c", " b ")) == expected


@pytest.mark.parametrize("name", ["llama3", "qwen3", "mistral", "marked"])
def test_a_user_who_says_the_same_is_not_taken_for_the_assistant(template_text: TemplateText, name: str) -> None:
    template = ChatTemplate(template_text(name), VARIABLES)
    _, expected = template.render_with_spans(_turns("ask", "one", "ask two", "two", "six", "ten", system="who"))
    _, got = template.render_with_spans(_turns("yes", "yes", "yes yes", "yes", "yes", "yes", system="yes"))
    assert len(got) == 3
    assert got == expected


def test_an_opening_assistant_turn_answers_nothing(template_text: TemplateText) -> None:
    messages = [{"role": "assistant", "content": "welcome"}, *_turns("a", "b")]
    assert _supervised(template_text("llama3"), messages) == ["b<|eot_id|>"]


def test_reasoning_that_a_template_drops_from_earlier_turns_is_not_looked_for(template_text: TemplateText) -> None:
    messages = _turns("a", "b", "c", "d")
    messages[1] |= THINKING
    messages[3] |= THINKING
    assert _supervised(template_text("qwen3"), messages) == [
        "b<|im_end|>\n",
        "<think>\nhm\n</think>\n\nd<|im_end|>\n",
    ]


def test_white_space_that_a_template_keeps_in_earlier_turns_only_is_part_of_the_turn(
    template_text: TemplateText,
) -> None:
    messages = _turns("a", "\n\n b \n", "c", "\n\n d \n")
    assert _supervised(template_text("qwen3"), messages) == [
        "\n\n b \n<|im_end|>\n",
        "<think>\n\n</think>\n\n d \n<|im_end|>\n",
    ]


def test_reasoning_inside_the_text_of_an_earlier_turn_is_dropped_too(template_text: TemplateText) -> None:
    messages = _turns("a", "<think>\nhm\n</think>\n\nb", "c", "d")
    assert _supervised(template_text("qwen3"), messages)[0] == "b<|im_end|>\n"


def test_a_generation_prompt_that_opens_with_an_empty_reasoning_block_ends_where_the_turn_differs(
    template_text: TemplateText,
) -> None:
    messages = _turns("a", "b")
    messages[1] |= THINKING
    got = _supervised(template_text("qwen3"), messages, enable_thinking=False)
    assert got == ["hm\n</think>\n\nb<|im_end|>\n"]


def test_a_system_prompt_that_moves_to_the_last_question_leaves_earlier_turns_findable(
    template_text: TemplateText,
) -> None:
    messages = _turns("a", "b", "c", "b", system="be kind")
    text, spans = ChatTemplate(template_text("mistral"), VARIABLES).render_with_spans(messages)
    assert text == "<s>[INST] a[/INST] b</s>[INST] be kind\n\nc[/INST] b</s>"
    assert [text[start:end] for start, end in spans] == [" b</s>", " b</s>"]
    assert spans[0][0] == text.index("[/INST]") + len("[/INST]")


def test_a_turn_that_the_template_rewrites_past_recognition_is_a_fault_and_no_wrong_mask() -> None:
    source = "{% for m in messages %}[{{ m.content if loop.last else '...' }}]{% endfor %}"
    with pytest.raises(RowFault, match="message 1, an assistant turn, is not found") as caught:
        _supervised(source, _turns("a", "b", "c"))
    assert caught.value.reason is QuarantineReason.BAD_COLUMN


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([{"role": "user", "content": "a"}] * 2, "roles must alternate"),
        ([{"role": "user", "content": "a"}, {"role": "tool", "content": "b"}], "Only user and assistant"),
    ],
)
def test_a_template_that_refuses_is_quoted(template_text: TemplateText, messages: list[Message], said: str) -> None:
    template = ChatTemplate(template_text("mistral"), VARIABLES)
    with pytest.raises(RowFault, match=said) as caught:
        template.render(messages)
    assert caught.value.reason is QuarantineReason.BAD_COLUMN


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[5].content }}",
        "{{ messages | first + 1 }}",
        "{{ 1 / 0 }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}{{ undefined_name() }}",
        "{% include 'secrets' %}",
    ],
)
def test_whatever_a_template_raises_is_a_fault_of_the_row(source: str) -> None:
    with pytest.raises(RowFault, match="refuses the conversation"):
        ChatTemplate(source, VARIABLES).render(_turns("a"))


def test_broken_jinja_is_refused_with_its_line() -> None:
    with pytest.raises(ShardError, match="not valid Jinja: line 2"):
        ChatTemplate("{{ a }}\n{% for %}", VARIABLES)


def test_a_final_message_can_be_left_open(template_text: TemplateText) -> None:
    template = ChatTemplate(template_text("llama3"), VARIABLES)
    closed, opened = (template.render(_turns("a", "b"), continue_final_message=is_open) for is_open in (False, True))
    assert opened.endswith("b")
    assert closed == opened + "<|eot_id|>"
