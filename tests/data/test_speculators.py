"""Token ids and loss masks against speculators 0.9, which runs in a virtual environment of its own.

speculators makes one training row of each assistant turn, with the conversation up to it; drillcore makes one row
of the whole conversation. Where a template renders the beginning of a conversation as the beginning of its text,
the two are the same tokens: each of their rows is a head of ours, and their masks together are ours.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tokenizers import Regex, pre_tokenizers
from transformers import AutoTokenizer

from drillcore.records import QuarantineEntry, QuarantineReason
from drillcore_server.data import PreparedRow, RowPreparer, open_dataset
from drillcore_server.volumes import Volumes
from drillcore_spec.dataset import DatasetSource

ROOT = Path(__file__).parents[2]
PEERS = Path(__file__).parent / "peers"
MAX_LENGTH = 400
NUM_CONVERSATIONS = 200
LLAMA_PATTERN = "|".join([
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
    r"[^\r\n\p{L}\p{N}]?\p{L}+",
    r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"\s*[\r\n]+|\s+(?!\S)|\s+",
])  # fmt: skip
"""Pre-tokenizer of Llama 3's tokenizer.json; Qwen's differs in the digits alone."""
TOKENS = {
    "llama3": ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    "qwen3": ["<think>", "</think>", "<tool_response>", "</tool_response>"],
    "mistral": ["<s>", "</s>", "[INST]", "[/INST]"],
}

pytestmark = [pytest.mark.long, pytest.mark.demo, pytest.mark.timeout(1800)]


class Turn(NamedTuple):
    """What a row says about one assistant turn."""

    ids: list[int]
    mask: list[int]


@pytest.fixture(scope="session")
def family_folder(
    demo_model: Path, template_text: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """A model family's template with a tokenizer in its manner: the demo model's vocabulary and its own tokens."""

    def make(family: str) -> Path:
        if family == "smollm2":
            return demo_model
        tokenizer = AutoTokenizer.from_pretrained(demo_model)
        split = pre_tokenizers.Split(Regex(LLAMA_PATTERN), behavior="isolated")
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
        tokenizer.add_special_tokens({"additional_special_tokens": TOKENS[family]})
        if family != "qwen3":
            tokenizer.add_special_tokens({"bos_token": TOKENS[family][0], "eos_token": TOKENS[family][1]})
        tokenizer.chat_template = template_text(family)
        folder = tmp_path_factory.mktemp(family)
        tokenizer.save_pretrained(folder)
        return folder

    return make


@pytest.fixture(scope="session")
def conversations() -> list[dict[str, Any]]:
    """Conversations of mixed shape from the words of the quickstart."""
    lines = (ROOT / "examples/data/quickstart.jsonl").read_text().splitlines()
    said = [message["content"] for line in lines for message in json.loads(line)["messages"]]
    pick = random.Random(7)
    return [_conversation(pick, said) for _ in range(NUM_CONVERSATIONS)]


def _conversation(pick: random.Random, said: list[str]) -> dict[str, Any]:
    is_sharegpt = pick.random() < 0.5
    roles = ["human", "gpt"] if is_sharegpt else ["user", "assistant"]
    role_key, text_key = ("from", "value") if is_sharegpt else ("role", "content")
    turns = [
        {role_key: roles[index % 2], text_key: _said(pick, said)}
        for index in range(2 * pick.choice([1, 1, 2, 3, 5]) + (pick.random() < 0.15))
    ]
    for turn in turns[1::2]:
        if pick.random() < 0.2:
            turn["reasoning_content"] = _said(pick, said)
    if pick.random() < 0.3:
        turns.insert(0, {role_key: "system", text_key: _said(pick, said)[:200]})
    return {"conversations": turns}


def _said(pick: random.Random, said: list[str]) -> str:
    text = pick.choice(said)[: pick.choice([3, 40, 400])].strip() or "yes"
    return pick.choice(["", "", " ", "\n", "\n\n  "]) + text + pick.choice(["", "", " ", "\n"])


def _theirs(python: Path, folder: Path, path: Path) -> list[list[Turn]]:
    command = [python, PEERS / "speculators_rows.py", folder, path, str(MAX_LENGTH)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [[Turn(*row) for row in rows] for rows in json.loads(output)]


def _ours(folder: Path, path: Path) -> list[PreparedRow | QuarantineEntry]:
    fields = {"uri": f"file://{path}", "columns": {"messages": "conversations"}}
    source = DatasetSource.model_validate(fields)
    dataset = open_dataset(source, Volumes(Path("/nowhere")))
    return RowPreparer(folder, source, MAX_LENGTH).prepare_batch(list(dataset.read(range(dataset.num_rows))))


def _write(path: Path, conversations: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(conversation) + "\n" for conversation in conversations))
    return path


def _united(rows: list[Turn], length: int) -> list[int]:
    return [int(any(row.mask[i] for row in rows if i < len(row.mask))) for i in range(length)]


@pytest.mark.parametrize("family", ["smollm2", "llama3"])
def test_their_rows_are_heads_of_ours_and_their_masks_together_are_ours(
    peer_python: Path, family_folder: Callable[[str], Path], conversations: list[dict[str, Any]],
    tmp_path: Path, family: str,
) -> None:  # fmt: skip
    path = _write(tmp_path / "rows.jsonl", conversations)
    folder = family_folder(family)
    compared = 0
    for ours, theirs in zip(_ours(folder, path), _theirs(peer_python, folder, path), strict=True):
        assert isinstance(ours, PreparedRow)
        assert ours.loss_mask is not None
        ids = ours.token_ids.tolist()
        assert all(row.ids == ids[: len(row.ids)] for row in theirs)
        assert ours.loss_mask.tolist() == _united(theirs, len(ids))
        compared += len(theirs)
    assert compared > NUM_CONVERSATIONS


@pytest.mark.parametrize("family", ["qwen3", "mistral"])
def test_where_a_template_rewrites_history_the_last_turn_is_the_same_and_earlier_ones_say_the_same(
    peer_python: Path, family_folder: Callable[[str], Path], conversations: list[dict[str, Any]],
    tmp_path: Path, family: str,
) -> None:  # fmt: skip
    path = _write(tmp_path / "rows.jsonl", conversations)
    folder = family_folder(family)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    same_rows = same_turns = 0
    for conversation, ours, theirs in zip(
        conversations, _ours(folder, path), _theirs(peer_python, folder, path), strict=True
    ):
        assert isinstance(ours, PreparedRow)
        spans = _supervised_runs(ours)
        if ours.original_tokens > MAX_LENGTH:
            continue
        last = conversation["conversations"][-1]
        assert len(spans) == len(theirs)
        if "gpt" in last.values() or "assistant" in last.values():
            same_rows += theirs[-1].ids == ours.token_ids.tolist()
            assert theirs[-1].ids == ours.token_ids.tolist()
            assert [i for i, m in enumerate(theirs[-1].mask) if m] == spans[-1]
        for span, row in zip(spans, theirs, strict=True):
            said = [token for token, masked in zip(row.ids, row.mask, strict=True) if masked]
            kept = ours.token_ids[span].tolist()
            same_turns += said == kept
            # Qwen3 writes a turn otherwise when it is not the last one: without reasoning, with all white space.
            said_text, kept_text = (tokenizer.decode(tokens).rpartition("</think>")[2] for tokens in (said, kept))
            assert said_text.strip() == kept_text.strip()
    assert same_rows > 50
    assert same_turns > 100


def _supervised_runs(row: PreparedRow) -> list[list[int]]:
    """The token indexes of each unbroken run of supervised tokens."""
    assert row.loss_mask is not None
    runs: list[list[int]] = []
    for index, masked in enumerate(row.loss_mask.tolist()):
        if masked and (index == 0 or not row.loss_mask[index - 1]):
            runs.append([])
        if masked:
            runs[-1].append(index)
    return runs


def test_what_they_guess_we_refuse(peer_python: Path, family_folder: Callable[[str], Path], tmp_path: Path) -> None:
    user = {"role": "user", "content": "a"}
    odd = [
        ([user, {"role": "bard", "content": "b"}], QuarantineReason.BAD_COLUMN, 1),
        ([user, {"role": "assistant", "content": ""}], QuarantineReason.EMPTY, 1),
        ([user], QuarantineReason.NO_ASSISTANT_TURN, 0),
        ([], QuarantineReason.EMPTY, 0),
        ([{"role": "assistant", "content": "b"}], QuarantineReason.NO_ASSISTANT_TURN, 0),
    ]
    path = _write(tmp_path / "rows.jsonl", [{"conversations": turns} for turns, _, _ in odd])
    folder = family_folder("smollm2")
    ours, theirs = _ours(folder, path), _theirs(peer_python, folder, path)
    assert [row.reason for row in ours if isinstance(row, QuarantineEntry)] == [reason for _, reason, _ in odd]
    assert [len(rows) for rows in theirs] == [count for _, _, count in odd]
