"""docs/format.md shows one complete example of every file: the one that is written here."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import drillcore
from drillcore.dtypes import StoreDType
from drillcore.journal import Journal, QuarantineLog
from drillcore.layout import Layout
from drillcore.manifest import ModelIdentity
from drillcore.part_schema import PartSchema
from drillcore.part_writer import PartWriter
from drillcore.publish import publish_commit, publish_complete, publish_manifest
from drillcore.records import QuarantineEntry, QuarantineReason, SampleEnd
from drillcore.sample_part_writer import SamplePartWriter
from drillcore.tensor_file import TensorFile

DOCUMENT = Path(__file__).parents[2] / "docs" / "format.md"
EXAMPLE = re.compile(r"<!-- example: (\S+) -->\n```(?:json|jsonl)\n(.*?)```", re.DOTALL)
PER_SAMPLE_EXAMPLE = re.compile(r"<!-- per-sample example: samples/hs_2\S+ -->\n```json\n(.*?)```", re.DOTALL)
ATTEMPT = "5f2c9a10"


def sample(row, id, token_ids, loss_mask):
    states = len(token_ids)
    return SampleEnd(
        row=row,
        id=id,
        token_ids=np.array(token_ids),
        num_prompt_tokens=states,
        original_tokens=states,
        last_token=None,
        num_states=states,
        positions=None,
        loss_mask=np.array(loss_mask, np.uint8),
        norm_sums=np.array([2.0, 4.5]) * states,
        max_abs=np.array([1.0, 3.25]),
    )


@pytest.fixture(scope="module")
def manifest(session_maker):
    return replace(
        session_maker.manifest,
        model=ModelIdentity(
            uri="hf://HuggingFaceTB/SmolLM2-135M-Instruct",
            revision="12fd25f77366fa6b3b4b768ec3050bf629380bac",
            config_sha256="8e0b0d1a" * 8,
            tokenizer_sha256="9ca9acdd" * 8,
            weights_fingerprint="5af571cb" * 8,
        ),
        dataset={
            "uri": "pvc://datasets/chats/*.jsonl",
            "files": [
                {"path": "a.jsonl", "bytes": 1048, "sha256": "0a1b2c3d" * 8},
                {"path": "b.jsonl", "bytes": 5368709120, "mtimeNs": 1767225600000000000},
            ],
            "columns": {"messages": "conversation", "id": "id"},
            "lossMask": "Assistant",
            "maxSamples": 3,
            "contextSize": 0,
            "overlong": "Skip",
        },
        layers=(16,),
        final_norm=True,
        hidden_size=4,
        dtype=StoreDType.BF16,
        store_dtype=StoreDType.BF16,
        max_model_len=2048,
        special_token_ids=(0, 1, 2),
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory, manifest):
    return written_output(Layout(tmp_path_factory.mktemp("example")), manifest)


def written_output(layout, manifest):
    shard = layout.shard(0)
    publish_manifest(layout, manifest)
    journal, quarantine = Journal(shard, ATTEMPT), QuarantineLog(shard, ATTEMPT)
    schema = PartSchema.of(manifest)
    if schema.per_sample:
        writer = SamplePartWriter(shard, 0, ATTEMPT, schema, ThreadPoolExecutor(1))
    else:
        writer = PartWriter(shard.part(0, ATTEMPT), schema)
    for end in (sample(0, "chat-0", [1, 504, 314, 2], [0, 0, 1, 1]), sample(2, None, [1, 28, 2], [0, 1, 1])):
        states = np.arange(end.num_states * 8).reshape(-1, 2, 4).astype(ml_dtypes.bfloat16)
        writer.append(memoryview(states.view(np.uint8).reshape(-1)))
        writer.end_sample(end)
    message = "row has 2,391 tokens, maxModelLen is 2,048"
    quarantine.append(QuarantineEntry(1, "a.jsonl", 2, "chat-1", QuarantineReason.TOO_LONG, message, skipped=True))
    part = writer.close()
    journal.append(part)
    publish_commit(shard, manifest, ATTEMPT, parts=[part], quarantine=quarantine, rows_in=3)
    publish_complete(layout, manifest)
    journal.close()
    quarantine.close()
    return layout.root


def tensors_of(path):
    """Every tensor of a file as lists."""
    file = TensorFile(path)
    specs = {name: spec for name, spec in header_of(path).items() if name != "__metadata__"}
    return {name: file.array(name, spec["dtype"], *spec["shape"]).tolist() for name, spec in specs.items()}


def header_of(path):
    data = path.read_bytes()
    return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])


def content_of(path, kind):
    match kind:
        case "header":
            return header_of(path)
        case "tensors":
            return tensors_of(path)
        case _ if path.suffix == ".jsonl":
            return [json.loads(line) for line in path.read_text().splitlines()]
        case _:
            return json.loads(path.read_text())


def test_every_example_is_what_is_written(root):
    examples = EXAMPLE.findall(DOCUMENT.read_text())
    for name, text in examples:
        path, _, kind = name.partition("#")
        written = content_of(root / path, kind)
        shown = [json.loads(line) for line in text.splitlines()] if path.endswith("jsonl") else json.loads(text)
        assert shown == written, f"{name} must be:\n{json.dumps(written, indent=2)}"


def test_every_file_has_an_example(root):
    written = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    shown = [name for name, _ in EXAMPLE.findall(DOCUMENT.read_text())]
    assert {name.partition("#")[0] for name in shown} == written
    for name in written:
        if name.endswith(".safetensors"):
            assert {f"{name}#header", f"{name}#tensors"} <= set(shown)


def test_the_file_of_one_row_is_shown_as_it_is_written(manifest, tmp_path):
    layout = Layout(written_output(Layout(tmp_path), replace(manifest, layout="PerSample")))
    header = header_of(layout.shard(0).sample(2))
    shown = PER_SAMPLE_EXAMPLE.search(DOCUMENT.read_text())
    assert json.loads(shown[1]) == header, f"the example must be:\n{json.dumps(header, indent=2)}"
    assert drillcore.verify(tmp_path).ok


def test_the_example_is_a_whole_output(root):
    assert drillcore.verify(root).ok
    output = drillcore.open(root)
    assert [sample.id for sample in output] == ["chat-0", None]


def test_the_json_of_the_examples_is_shown_as_it_stands_on_disk(root):
    for name, text in EXAMPLE.findall(DOCUMENT.read_text()):
        if "#" not in name:
            assert text == (root / name).read_text()


def test_all_quarantine_reasons_and_row_counts_are_explained():
    document = DOCUMENT.read_text()
    for reason in QuarantineReason:
        assert f"`{reason}`" in document
    for key in drillcore.Counts().to_json():
        assert f"`{key}`" in document
