from __future__ import annotations

import hashlib
import shutil

import pytest

from drillcore_server.errors import ShardError
from drillcore_server.models.checkpoint import SafetensorsFile
from drillcore_server.models.fingerprint import config_sha256, tokenizer_sha256, weights_fingerprint
from drillcore_spec.reasons import Reason


@pytest.fixture
def folder(tiny_model_folder, tmp_path):
    return shutil.copytree(tiny_model_folder("llama"), tmp_path / "model")


def flip(path, offset):
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def test_a_copy_has_the_same_digests(folder, tiny_model_folder):
    original = tiny_model_folder("llama")
    for digest in (config_sha256, tokenizer_sha256, weights_fingerprint):
        assert digest(folder) == digest(original)
        assert len(digest(folder)) == 64


def test_the_config_digest_is_the_sha256_of_the_file(folder):
    assert config_sha256(folder) == hashlib.sha256((folder / "config.json").read_bytes()).hexdigest()


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"])
def test_any_tokenizer_file_changes_the_tokenizer_digest(folder, name):
    before = tokenizer_sha256(folder)
    flip(folder / name, 10)
    changed = tokenizer_sha256(folder)
    (folder / name).unlink()
    assert len({before, changed, tokenizer_sha256(folder)}) == 3


def test_other_files_change_no_digest(folder):
    before = (tokenizer_sha256(folder), weights_fingerprint(folder))
    (folder / "README.md").write_text("changed")
    (folder / "consolidated.safetensors").write_text("changed")
    assert (tokenizer_sha256(folder), weights_fingerprint(folder)) == before


def test_both_ends_of_every_tensor_change_the_weights_fingerprint(folder):
    path = folder / "model.safetensors"
    before = weights_fingerprint(folder)
    for stored in SafetensorsFile.open(path).tensors.values():
        for offset in (stored.offset, stored.offset + stored.num_bytes - 1):
            flip(path, offset)
            assert weights_fingerprint(folder) != before
            flip(path, offset)
    assert weights_fingerprint(folder) == before


def test_header_and_file_name_change_the_weights_fingerprint(folder):
    path = folder / "model.safetensors"
    before = weights_fingerprint(folder)
    path.write_bytes(path.read_bytes().replace(b'"format":"pt"', b'"format":"tf"'))
    assert weights_fingerprint(folder) != before


def test_broken_weights_have_no_fingerprint(folder):
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(ShardError) as error:
        weights_fingerprint(folder)
    assert error.value.reason is Reason.MODEL_BROKEN


def test_a_missing_config_has_no_digest(folder):
    (folder / "config.json").unlink()
    with pytest.raises(ShardError, match=r"config\.json") as error:
        config_sha256(folder)
    assert error.value.reason is Reason.MODEL_BROKEN
