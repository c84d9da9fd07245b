import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore_server.data.tokenizer import Tokenizer
from drillcore_server.errors import ShardError
from drillcore_spec.reasons import Reason


def test_texts_get_the_special_tokens_that_the_tokenizer_adds(tokenizer: Tokenizer, tokenizer_folder: Path) -> None:
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(tokenizer_folder)
    texts = ["The sea", "", " rain\n\n 🎉"]
    assert [ids.tolist() for ids in tokenizer.encode_texts(texts)] == theirs(texts)["input_ids"]
    assert tokenizer.encode_texts(["a"])[0][0] == theirs.bos_token_id


def test_a_text_that_begins_with_bos_does_not_get_a_second_one(tokenizer: Tokenizer) -> None:
    plain, with_bos, with_two = tokenizer.encode_texts(["The sea", "<s>The sea", "<s><s>The sea"])
    assert with_bos.tolist() == plain.tolist()
    assert with_two.tolist() == [plain[0], *plain]


def test_rendered_texts_get_no_special_tokens(tokenizer: Tokenizer) -> None:
    (encoded,) = tokenizer.encode_rendered(["<s><|im_start|>a"])
    assert encoded.token_ids.tolist() == [0, 2, tokenizer.encode_texts(["a"])[0][1]]


@given(
    text=st.text(st.sampled_from("the sea 🎉é日\n\t."), min_size=1, max_size=40),
    borders=st.lists(st.integers(0, 40), min_size=2, max_size=2).map(sorted),
)
def test_a_token_is_masked_when_a_character_of_its_is_in_a_span(
    tokenizer: Tokenizer, text: str, borders: list[int]
) -> None:
    start, end = (min(border, len(text)) for border in borders)
    if start == end:
        return
    (encoded,) = tokenizer.encode_rendered([text])
    covered, place = [], 0
    # Bytes of the tokens tile the text: which token covers which character needs no offsets.
    bytes_of_character = [character.encode() for character in text]
    character_of_byte = [index for index, encoding in enumerate(bytes_of_character) for _ in encoding]
    for token in map(tokenizer._backend.id_to_token, encoded.token_ids.tolist()):
        characters = set(character_of_byte[place : place + len(token)])
        covered.append(bool(characters & set(range(start, end))))
        place += len(token)
    assert place == len(character_of_byte)
    assert encoded.mask([(start, end)]).astype(bool).tolist() == covered


def test_the_mask_of_no_span_is_zero(tokenizer: Tokenizer) -> None:
    (encoded,) = tokenizer.encode_rendered(["The sea"])
    mask = encoded.mask([])
    assert mask.dtype == np.uint8
    assert not mask.any()


def test_the_vocabulary_is_the_models_and_not_the_tokenizers(
    tokenizer: Tokenizer, tokenizer_folder: Path, tmp_path: Path
) -> None:
    assert tokenizer.vocab_size == 1000
    nested = shutil.copytree(tokenizer_folder, tmp_path / "nested")
    (nested / "config.json").write_text(json.dumps({"text_config": {"vocab_size": 77}}))
    assert Tokenizer(nested).vocab_size == 77
    (nested / "config.json").unlink()
    assert Tokenizer(nested).vocab_size == tokenizer._backend.get_vocab_size()


def test_special_tokens_are_known(tokenizer: Tokenizer) -> None:
    assert tokenizer.special_token_ids[:2] == (0, 1)
    assert tokenizer.special_tokens["bos_token"] == "<s>"


@pytest.mark.parametrize("broken", ["missing", "not json"])
def test_a_tokenizer_that_cannot_be_loaded_is_named(tmp_path: Path, broken: str) -> None:
    if broken == "not json":
        (tmp_path / "tokenizer.json").write_text("{")
        (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    with pytest.raises(ShardError, match="cannot be loaded") as caught:
        Tokenizer(tmp_path)
    assert caught.value.reason is Reason.MODEL_BROKEN
    assert str(tmp_path) in caught.value.message


def test_ids_that_come_one_at_a_time_make_whole_characters(tokenizer: Tokenizer) -> None:
    (ids,) = tokenizer.encode_plain(["the sea 🎉 é"])
    stream = tokenizer.text_stream()
    parts = [stream.add(token_id) for token_id in ids.tolist()]
    assert "".join(parts) == "the sea 🎉 é"
    assert "" in parts


@pytest.mark.parametrize(("skip_special_tokens", "text"), [(True, "a"), (False, "<s>a")])
def test_special_tokens_give_text_on_request(tokenizer: Tokenizer, skip_special_tokens: bool, text: str) -> None:
    stream = tokenizer.text_stream(skip_special_tokens=skip_special_tokens)
    (ids,) = tokenizer.encode_plain(["<s>a"])
    assert "".join(map(stream.add, ids.tolist())) == text


def test_an_id_that_has_no_token_gives_no_text(tokenizer: Tokenizer) -> None:
    stream = tokenizer.text_stream()
    (ids,) = tokenizer.encode_plain(["a"])
    assert [stream.add(tokenizer.vocab_size - 1), stream.add(int(ids[0]))] == ["", "a"]


def test_a_stream_goes_on_after_a_decoder_that_changed_its_mind(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Confused:
        def step(self, *_: object) -> str:
            raise Exception("Invalid prefix encountered while decoding stream.")

    stream = tokenizer.text_stream()
    (ids,) = tokenizer.encode_plain(["a"])
    monkeypatch.setattr(stream, "_stream", Confused())
    assert stream.add(int(ids[0])) == "a"
