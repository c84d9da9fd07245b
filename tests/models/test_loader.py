from __future__ import annotations

import json
import shutil

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from drillcore_server.errors import ShardError
from drillcore_server.models.checkpoint import SafetensorsFile
from drillcore_server.models.loader import load_decoder, load_weights
from drillcore_server.models.spec import ModelSpec
from drillcore_spec.reasons import Reason

Q_PROJ = "model.layers.1.self_attn.q_proj.weight"


@pytest.fixture
def folder(tiny_model_folder, tmp_path):
    """A private copy of a tiny Llama, to be damaged."""
    return shutil.copytree(tiny_model_folder("llama"), tmp_path / "model")


@pytest.fixture
def edit(folder):
    """`edit(change)`: rewrites the weights after `change(tensors)`."""

    def rewrite(change):
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    return rewrite


def load(folder, dtype=torch.float32, **options):
    options = {"num_layers": 3, "lm_head": True, "final_norm": True} | options
    spec = ModelSpec.from_folder(folder)
    return load_weights(folder, spec, device=torch.device("cpu"), dtype=dtype, **options)


def refusal(folder, **options):
    with pytest.raises(ShardError) as error:
        load(folder, **options)
    return error.value


def shard(folder, num_files=3):
    """Splits the single file into `num_files` with an index."""
    tensors = load_file(folder / "model.safetensors")
    names = [f"model-{i + 1:05}-of-{num_files:05}.safetensors" for i in range(num_files)]
    weight_map = {key: names[i % num_files] for i, key in enumerate(sorted(tensors))}
    for name in names:
        save_file({key: tensors[key] for key, file in weight_map.items() if file == name}, folder / name)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return weight_map


def flattened(weights):
    block_tensors = [
        tensor
        for block in weights.blocks
        for tensor in (block.qkv.weight, block.output.weight, block.gate_up.weight, block.down.weight)
    ]
    return torch.cat([tensor.flatten() for tensor in (weights.embedding, *block_tensors)])


def test_every_parameter_is_written_and_every_tensor_is_accounted_for(folder, monkeypatch):
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *args, **options: empty(*args, **options).fill_(torch.nan))
    weights, report = load(folder)
    tensors = load_file(folder / "model.safetensors")
    assert set(report.consumed) == set(tensors)
    assert report.not_needed == report.ignored == ()
    assert report.bytes_read == sum(tensor.nbytes for tensor in tensors.values())
    attention = "model.layers.1.self_attn."
    packed = torch.cat([tensors[f"{attention}{name}_proj.weight"] for name in "qkv"])
    assert torch.equal(weights.blocks[1].qkv.weight, packed)
    assert not flattened(weights).isnan().any()


def test_what_the_job_does_not_need_is_not_read(folder, edit):
    _, report = load(folder, num_layers=1, lm_head=False, final_norm=False)
    assert {key.split(".")[2] for key in report.consumed if "layers" in key} == {"0"}
    assert {"lm_head.weight", "model.norm.weight", Q_PROJ} <= set(report.not_needed)
    edit(lambda tensors: [tensors.pop(key) for key in report.not_needed])
    weights, _ = load(folder, num_layers=1, lm_head=False, final_norm=False)
    assert len(weights.blocks) == 1
    assert weights.final_norm is weights.lm_head is None


def test_files_of_a_sharded_checkpoint_give_the_same_weights(folder):
    whole, _ = load(folder)
    shard(folder)
    parts, report = load(folder)
    assert torch.equal(flattened(whole), flattened(parts))
    assert len(report.consumed) == 30


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16])
def test_weights_are_cast_on_the_way(folder, edit, stored, monkeypatch):
    monkeypatch.setattr("drillcore_server.models.reader._STAGING_BYTES", 1000)
    edit(lambda tensors: tensors.update({key: tensor.to(stored) for key, tensor in tensors.items()}))
    weights, _ = load(folder)
    tensors = load_file(folder / "model.safetensors")
    assert torch.equal(weights.embedding, tensors["model.embed_tokens.weight"].float())
    assert torch.equal(weights.blocks[2].down.weight, tensors["model.layers.2.mlp.down_proj.weight"].float())


def test_weights_keep_the_dtype_asked_for(folder):
    weights, _ = load(folder, dtype=torch.bfloat16)
    assert weights.blocks[0].qkv.weight.dtype is weights.final_norm.dtype is torch.bfloat16


def test_a_checkpoint_of_the_bare_decoder_loads_without_its_prefix(folder, edit):
    def strip(tensors):
        tensors.pop("lm_head.weight")
        for key in list(tensors):
            tensors[key.removeprefix("model.")] = tensors.pop(key)

    whole, _ = load(folder)
    edit(strip)
    bare, _ = load(folder, lm_head=False)
    assert torch.equal(flattened(whole), flattened(bare))


def test_tied_embeddings_are_one_tensor(tiny_model_folder):
    weights, report = load(tiny_model_folder("llama", tie_word_embeddings=True))
    assert weights.lm_head is weights.embedding
    assert "lm_head.weight" not in report.consumed


def test_an_output_embedding_that_is_stored_apart_is_used_even_if_the_config_ties_it(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    weights, _ = load(folder)
    assert torch.equal(weights.lm_head, load_file(folder / "model.safetensors")["lm_head.weight"])


def test_an_untied_model_without_output_embedding_is_broken(folder, edit):
    edit(lambda tensors: tensors.pop("lm_head.weight"))
    assert "lm_head.weight" in refusal(folder).message
    assert load(folder, lm_head=False)[0].lm_head is None


def test_tensors_that_follow_from_the_config_or_lie_outside_the_blocks_are_listed(folder, edit):
    extra = ("model.layers.0.self_attn.rotary_emb.inv_freq", "score.weight", "model.layers.7.eh_proj.weight")
    edit(lambda tensors: tensors.update({key: torch.zeros(4) for key in extra}))
    assert set(load(folder)[1].ignored) == set(extra)


@pytest.mark.parametrize("suffix", ["self_attn.q_proj.bias", "mlp.down_proj.weight_scale"])
def test_an_unexpected_tensor_in_a_block_that_runs_is_broken(folder, edit, suffix):
    key = f"model.layers.1.{suffix}"
    edit(lambda tensors: tensors.update({key: torch.zeros(4)}))
    error = refusal(folder)
    assert error.reason is Reason.MODEL_BROKEN
    assert key in error.message
    assert load(folder, num_layers=1)[1].ignored == (key,)


def test_a_missing_tensor_is_broken(folder, edit):
    edit(lambda tensors: tensors.pop(Q_PROJ))
    error = refusal(folder)
    assert error.reason is Reason.MODEL_BROKEN
    assert f"`{Q_PROJ}` [64, 64]" in error.message


def test_a_tensor_of_another_shape_is_broken(folder, edit):
    edit(lambda tensors: tensors.update({Q_PROJ: torch.zeros(64, 60)}))
    error = refusal(folder)
    assert error.reason is Reason.MODEL_BROKEN
    assert all(part in error.message for part in ("model.safetensors", Q_PROJ, "[64, 64]", "[64, 60]"))


def test_a_tensor_of_another_dtype_is_unsupported(folder, edit):
    edit(lambda tensors: tensors.update({Q_PROJ: torch.zeros(64, 64).to(torch.float8_e4m3fn)}))
    error = refusal(folder)
    assert error.reason is Reason.MODEL_UNSUPPORTED
    assert "F8_E4M3" in error.message


@pytest.mark.parametrize("kept_bytes", [0, 5, 100, 20_000, -1])
def test_a_cut_off_file_is_broken(folder, kept_bytes):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept_bytes])
    error = refusal(folder)
    assert error.reason is Reason.MODEL_BROKEN
    assert str(path) in error.message


def test_bytes_after_the_last_tensor_are_broken(folder):
    with (folder / "model.safetensors").open("ab") as file:
        file.write(b"more")
    assert refusal(folder).reason is Reason.MODEL_BROKEN


def test_a_file_that_shrinks_after_its_header_was_read_is_broken(folder, monkeypatch):
    from drillcore_server.models import loader

    path = folder / "model.safetensors"

    def read(stored, target):
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size // 2)
        original(stored, target)

    original = loader.read_tensor
    monkeypatch.setattr(loader, "read_tensor", read)
    error = refusal(folder)
    assert error.reason is Reason.MODEL_BROKEN
    assert "ends there" in error.message


@pytest.mark.parametrize(
    "header",
    [
        b"{}x",
        b"[]",
        b'{"a": 1}',
        b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]}}',
        b'{"a": {"dtype": "F32", "shape": [1.5], "data_offsets": [0, 6]}}',
        b'{"a": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [1152921504606846976], "data_offsets": [0, 4611686018427387904]}}',
        b"[" * 5000,
    ],
)
def test_a_header_that_contradicts_itself_is_broken(folder, header):
    content = len(header).to_bytes(8, "little") + header + bytes(4)
    (folder / "model.safetensors").write_bytes(content)
    error = refusal(folder)
    assert error.reason is Reason.MODEL_BROKEN
    assert "model.safetensors" in error.message
    assert len(error.message) < 1000


def test_an_index_that_names_a_missing_file_is_broken(folder):
    shard(folder)
    (folder / "model-00002-of-00003.safetensors").unlink()
    error = refusal(folder)
    assert error.reason is Reason.MODEL_BROKEN
    assert "model-00002-of-00003.safetensors" in error.message


def test_an_index_that_places_a_tensor_wrongly_is_broken(folder):
    weight_map = shard(folder)
    other = next(name for name in weight_map.values() if name != weight_map[Q_PROJ])
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map | {Q_PROJ: other}}))
    error = refusal(folder)
    assert error.reason is Reason.MODEL_BROKEN
    assert Q_PROJ in error.message


@pytest.mark.parametrize("weight_map", [{}, [], None, {"a": 1}, {"a": "../x.safetensors"}, {"a": "/etc/passwd"}])
def test_an_index_names_only_files_of_its_folder(folder, weight_map):
    shard(folder)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    error = refusal(folder)
    assert error.reason is Reason.MODEL_BROKEN
    assert "weight_map" in error.message


def test_weights_in_another_format_only_are_unsupported(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    error = refusal(folder)
    assert error.reason is Reason.MODEL_UNSUPPORTED
    assert "pytorch_model.bin" in error.message


def test_no_weights_at_all_are_broken(folder):
    (folder / "model.safetensors").unlink()
    assert refusal(folder).reason is Reason.MODEL_BROKEN


def test_rope_tables_cover_the_positions_asked_for(folder):
    spec = ModelSpec.from_folder(folder)
    decoder = load_decoder(
        folder,
        spec,
        device="cpu",
        dtype=torch.float32,
        num_layers=0,
        lm_head=False,
        final_norm=False,
        max_positions=10,
    )
    assert decoder.cos.shape == decoder.sin.shape == (10, spec.head_dim // 2)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=st.lists(st.tuples(st.integers(0, 1999), st.integers(0, 255)), min_size=1, max_size=8))
def test_a_damaged_header_gives_a_checkpoint_or_our_error(tiny_model_folder, tmp_path, edits):
    content = bytearray((tiny_model_folder("llama") / "model.safetensors").read_bytes())
    for position, value in edits:
        content[position] = value
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    result = opened(path)
    if isinstance(result, ShardError):
        assert result.reason is Reason.MODEL_BROKEN
    else:
        assert all(t.offset + t.num_bytes <= result.size_bytes for t in result.tensors.values())


def opened(path):
    try:
        return SafetensorsFile.open(path)
    except ShardError as error:
        return error
