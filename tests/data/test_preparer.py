from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drillcore.records import QuarantineEntry, QuarantineReason
from drillcore_server.data import PreparedRow, RowPreparer
from drillcore_server.data.tokenizer import Tokenizer
from drillcore_server.errors import ShardError
from drillcore_spec.dataset import DatasetSource
from drillcore_spec.enums import PositionsKind
from drillcore_spec.reasons import Reason

Prepared = Callable[..., list[Any]]
WriteRows = Callable[..., Path]
IDS = {"input_ids": "ids"}
CHAT = {"messages": "messages"}


def _conversation(*texts: str) -> dict[str, Any]:
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]}


def _reasons(rows: list[Any]) -> list[QuarantineReason | None]:
    return [row.reason if isinstance(row, QuarantineEntry) else None for row in rows]


def _decoded(tokenizer: Tokenizer, token_ids: Any) -> str:
    text: str = tokenizer._backend.decode(token_ids.tolist(), skip_special_tokens=False)
    return text


def test_rows_keep_their_place_and_id(write_rows: WriteRows, prepared: Prepared, tokenizer: Tokenizer) -> None:
    write_rows([{"text": "The sea", "key": 7}, {"text": None, "key": "x"}, b"{", {"text": "rain"}])
    first, second, third, fourth = prepared(columns={"text": "text", "id": "key"})
    assert (first.row, first.file, first.line, first.id) == (0, "rows.jsonl", 1, "7")
    assert first.token_ids.tolist() == tokenizer.encode_texts(["The sea"])[0].tolist()
    assert first.original_tokens == len(first.token_ids)
    assert first.loss_mask is None
    assert (second.row, second.line, second.id, second.reason) == (1, 2, "x", QuarantineReason.BAD_COLUMN)
    assert (third.row, third.id, third.reason) == (2, None, QuarantineReason.UNREADABLE_ROW)
    assert (fourth.row, fourth.id) == (3, None)


def test_a_batch_gives_what_single_rows_give(
    write_rows: WriteRows, prepared: Prepared, opened: Callable[..., Any], tokenizer_folder: Path,
    source_of: Callable[..., DatasetSource],
) -> None:  # fmt: skip
    write_rows([_conversation("a", "b" * n, "c", "the sea " * n) for n in range(1, 30)])
    preparer = RowPreparer(tokenizer_folder, source_of(columns=CHAT), 512)
    singles = [preparer.prepare(row) for row in opened(columns=CHAT).read(range(29))]
    for batched, single in zip(prepared(columns=CHAT), singles, strict=True):
        assert batched.token_ids.tolist() == single.token_ids.tolist()
        assert batched.loss_mask.tolist() == single.loss_mask.tolist()


def test_given_ids_are_never_altered_but_must_be_in_the_vocabulary(write_rows: WriteRows, prepared: Prepared) -> None:
    odd = [0, 0, 999, 1, 0, 1, 1]
    write_rows([{"ids": odd}, {"ids": [1, 1000]}, {"ids": [-1]}, {"ids": []}, {"ids": [2**80]}])
    first, *others = prepared(columns=IDS)
    assert first.token_ids.tolist() == odd
    assert _reasons(others) == [QuarantineReason.BAD_COLUMN] * 2 + [QuarantineReason.EMPTY, QuarantineReason.BAD_COLUMN]
    assert "must be 0 to 999; got 1000 at index 1" in others[0].message


def test_truncate_keeps_the_head_and_the_original_length(write_rows: WriteRows, prepared: Prepared) -> None:
    write_rows([{"ids": list(range(10)), "mask": [0] * 5 + [1] * 5}])
    (row,) = prepared(max_model_len=6, columns=IDS | {"loss_mask": "mask"})
    assert row.token_ids.tolist() == list(range(6))
    assert row.loss_mask.tolist() == [0] * 5 + [1]
    assert row.original_tokens == 10


def test_skip_quarantines_a_long_row_without_holding_it_against_the_job(
    write_rows: WriteRows, prepared: Prepared
) -> None:
    write_rows([{"ids": [1] * 7}, {"ids": [1] * 6}])
    long, fitting = prepared(max_model_len=6, columns=IDS, overlong="Skip")
    assert (long.reason, long.skipped) == (QuarantineReason.TOO_LONG, True)
    assert "7 tokens; at most 6 fit" in long.message
    assert len(fitting.token_ids) == 6


def test_a_conversation_to_be_answered_is_not_cut_because_its_end_asks(
    write_rows: WriteRows, prepared: Prepared
) -> None:
    short, long = ([{"role": "user", "content": "a " * words}] for words in (1, 400))
    write_rows([{"messages": short}, {"messages": long}])
    preparer = {"is_generating": True}
    answered, quarantined = prepared(max_model_len=100, columns=CHAT, preparer=preparer)
    assert answered.original_tokens == len(answered.token_ids)
    assert (quarantined.reason, quarantined.skipped) == (QuarantineReason.TOO_LONG, False)
    assert "at most 100 fit" in quarantined.message
    assert "overlong: Skip" in quarantined.message
    (_, skipped) = prepared(max_model_len=100, columns=CHAT, preparer=preparer, overlong="Skip")
    assert (skipped.reason, skipped.skipped) == (QuarantineReason.TOO_LONG, True)


def test_a_text_to_be_continued_is_cut_and_goes_on_from_there(write_rows: WriteRows, prepared: Prepared) -> None:
    write_rows([{"ids": list(range(10))}])
    (row,) = prepared(max_model_len=6, columns=IDS, preparer={"is_generating": True})
    assert row.token_ids.tolist() == list(range(6))
    assert row.original_tokens == 10


def test_fail_ends_the_job_at_a_long_row(write_rows: WriteRows, prepared: Prepared) -> None:
    write_rows([{"ids": [1] * 6}, {"ids": [1] * 7}])
    with pytest.raises(ShardError, match=r"rows\.jsonl, line 2: the row has 7 tokens.*overlong") as caught:
        prepared(max_model_len=6, columns=IDS, overlong="Fail")
    assert caught.value.reason is Reason.BAD_DATASET


def test_the_mask_column_must_fit_the_tokens(write_rows: WriteRows, prepared: Prepared) -> None:
    write_rows([{"ids": [1, 2], "mask": [0, 1]}, {"ids": [1, 2], "mask": [1]}, {"ids": [1, 2]}])
    good, short, missing = prepared(columns=IDS | {"loss_mask": "mask"})
    assert good.loss_mask.tolist() == [0, 1]
    assert _reasons([short, missing]) == [QuarantineReason.BAD_COLUMN] * 2


def test_assistant_masks_cover_what_the_assistant_says(
    write_rows: WriteRows, prepared: Prepared, tokenizer: Tokenizer
) -> None:
    write_rows([_conversation("The sea?", " it is blue \n", "rain 🎉?", "日本")])
    (row,) = prepared(columns=CHAT)
    supervised = _decoded(tokenizer, row.token_ids[row.loss_mask == 1])
    assert supervised == "it is blue<|eot_id|>日本<|eot_id|>"
    assert row.token_ids.tolist().count(0) == 1


def test_a_conversation_without_an_answer_is_quarantined_only_when_its_mask_is_wanted(
    write_rows: WriteRows, prepared: Prepared
) -> None:
    write_rows([_conversation("a"), {"messages": [{"role": "assistant", "content": "a"}]}])
    assert _reasons(prepared(columns=CHAT)) == [QuarantineReason.NO_ASSISTANT_TURN] * 2
    unmasked = prepared(columns=CHAT, loss_mask="None")
    assert _reasons(unmasked) == [None, None]
    assert unmasked[0].loss_mask is None


def test_positions_loss_mask_needs_a_supervised_token_that_is_kept(write_rows: WriteRows, prepared: Prepared) -> None:
    write_rows([{"ids": [1] * 8, "mask": [0] * 7 + [1]}, {"ids": [1] * 8, "mask": [1] * 8}])
    columns = IDS | {"loss_mask": "mask"}
    cut = prepared(max_model_len=7, columns=columns, preparer={"positions": PositionsKind.LOSS_MASK})
    assert _reasons(cut) == [QuarantineReason.NOTHING_SELECTED, None]
    assert _reasons(prepared(max_model_len=7, columns=columns)) == [None, None]


def test_text_in_half_a_surrogate_pair_spoils_only_its_row(write_rows: WriteRows, prepared: Prepared) -> None:
    write_rows(
        [_conversation("a", "b"), b'{"messages": [{"role": "user", "content": "\\ud83d"}]}', _conversation("a", "b")]
    )
    assert _reasons(prepared(columns=CHAT, loss_mask="None")) == [None, QuarantineReason.BAD_COLUMN, None]


def test_prompts_end_with_the_generation_prompt_and_without_recorded_last_answers(
    write_rows: WriteRows, prepared: Prepared, tokenizer: Tokenizer
) -> None:
    write_rows(
        [_conversation("a", "b", "c", "d"), _conversation("a"), {"messages": [{"role": "assistant", "content": "a"}]}]
    )
    first, second, third = prepared(columns=CHAT, preparer={"is_generating": True})
    decoded = _decoded(tokenizer, first.token_ids)
    assert decoded.endswith("c<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n")
    assert _decoded(tokenizer, first.token_ids[first.loss_mask == 1]) == "b<|eot_id|>"
    assert not second.loss_mask.any()
    assert third.reason is QuarantineReason.EMPTY


def test_messages_without_a_chat_template_are_refused(
    tokenizer_folder: Path, tmp_path: Path, source_of: Callable[..., DatasetSource]
) -> None:
    for file in tokenizer_folder.iterdir():
        if file.name != "chat_template.jinja":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(ShardError, match=r"has none: set `spec\.dataset\.chatTemplate`"):
        RowPreparer(tmp_path, source_of(columns=CHAT), 512)


def test_empty_rows_of_each_kind_are_quarantined(write_rows: WriteRows, prepared: Prepared) -> None:
    write_rows([{"text": "", "messages": [], "ids": []}, {"text": "a", "messages": [], "ids": [1]}])
    assert _reasons(prepared())[0] is QuarantineReason.EMPTY
    assert _reasons(prepared(columns=CHAT))[0] is QuarantineReason.EMPTY
    assert _reasons(prepared(columns=IDS))[0] is QuarantineReason.EMPTY


def test_prepared_rows_own_no_more_than_their_tokens(write_rows: WriteRows, prepared: Prepared) -> None:
    write_rows([{"text": "the sea " * 1000}])
    (row,) = prepared(max_model_len=8)
    assert isinstance(row, PreparedRow)
    assert row.token_ids.base is None


def test_rows_without_a_supervised_token_are_counted(
    write_rows: WriteRows, opened: Callable[..., Any], tokenizer_folder: Path, source_of: Callable[..., DatasetSource]
) -> None:
    write_rows([{"ids": [1] * 4, "mask": [0, 0, 0, 1]}, {"ids": [1], "mask": [1]}, {"ids": [1], "mask": [0]}])
    columns = IDS | {"loss_mask": "mask"}
    preparer = RowPreparer(tokenizer_folder, source_of(columns=columns), 3)
    preparer.prepare_batch(list(opened(columns=columns).read(range(3))))
    assert preparer.counts.unsupervised_rows == 2


def test_the_jobs_own_template_and_arguments_are_used(
    write_rows: WriteRows, prepared: Prepared, template_text: Callable[[str], str], tokenizer: Tokenizer
) -> None:
    write_rows([_conversation("a")])
    (row,) = prepared(
        columns=CHAT,
        chat_template_kwargs={"enable_thinking": "false"},
        preparer={"chat_template": template_text("qwen3"), "is_generating": True},
    )
    assert _decoded(tokenizer, row.token_ids).endswith("assistant\n<think>\n\n</think>\n\n")
