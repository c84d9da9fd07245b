import os

import ml_dtypes
import numpy as np
import pytest
import xxhash
from safetensors import safe_open
from safetensors.numpy import load_file

from drillcore.dtypes import StoreDType
from drillcore.errors import OutputIOError, OutputUnwritableError
from drillcore.layout import temporary
from drillcore.sample_file import SampleFileWriter
from drillcore.sample_schema import SampleFileSchema

SCHEMA = SampleFileSchema(StoreDType.F32, 3, 8, {"format": "drillcore-sample", "layers": "[0, 1, 2]"})
STATES = np.arange(5 * 3 * 8, dtype=np.float32).reshape(5, 3, 8)
TOKENS = np.array([1, 504, 314, 28, 2])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "hs_7.safetensors"


def written(path, states=STATES, tokens=TOKENS, schema=SCHEMA, attempt="00000001", last_token=None):
    writer = SampleFileWriter(temporary(path, attempt), schema)
    for chunk in np.array_split(states, 3):
        writer.append(memoryview(np.ascontiguousarray(chunk).view(np.uint8).reshape(-1)))
    return writer, writer.finish(tokens, last_token)


def test_any_safetensors_reader_finds_exactly_states_and_tokens(path):
    writer, info = written(path)
    writer.publish(path)
    tensors = load_file(path)
    assert sorted(tensors) == ["hidden_states", "token_ids"]
    np.testing.assert_array_equal(tensors["hidden_states"], STATES)
    np.testing.assert_array_equal(tensors["token_ids"], TOKENS)
    assert tensors["token_ids"].dtype == np.int64
    assert info.bytes == path.stat().st_size == SCHEMA.file_bytes(5, 5)


def test_the_metadata_carries_the_checksum_of_what_follows_the_header(path):
    writer, info = written(path, last_token=28)
    writer.publish(path)
    data = path.read_bytes()
    block = SCHEMA.header_block_bytes
    with safe_open(path, "numpy") as file:
        metadata = file.metadata()
    assert metadata == {**SCHEMA.metadata, "xxh3_64": xxhash.xxh3_64_hexdigest(data[block:]), "lastToken": "28"}
    assert info.xxh3_64 == xxhash.xxh3_64_intdigest(data[block:] + data[:block])


def test_bfloat16_and_fewer_states_than_tokens(path):
    schema = SampleFileSchema(StoreDType.BF16, 1, 8, {})
    states = STATES[:2, :1].astype(ml_dtypes.bfloat16)
    writer, _ = written(path, states, TOKENS, schema)
    writer.publish(path)
    tensors = load_file(path)
    assert tensors["hidden_states"].tobytes() == states.tobytes()
    assert len(tensors["token_ids"]) == 5


@pytest.mark.parametrize("tokens", [0, 1])
def test_the_smallest_samples(path, tokens):
    writer, _ = written(path, STATES[:tokens], TOKENS[:tokens])
    writer.publish(path)
    assert load_file(path)["hidden_states"].shape == (tokens, 3, 8)


def test_nothing_stands_under_the_name_before_it_is_published(path):
    writer, _ = written(path)
    assert not path.exists()
    writer.publish(path)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_the_first_one_keeps_the_name_and_publish_replaces_it(path):
    first, _ = written(path)
    second, _ = written(path, -STATES, attempt="00000002")
    third, _ = written(path, 2 * STATES, attempt="00000003")
    assert first.publish_once(path)
    assert not second.publish_once(path)
    second.abandon()
    np.testing.assert_array_equal(load_file(path)["hidden_states"], STATES)
    third.publish(path)
    np.testing.assert_array_equal(load_file(path)["hidden_states"], 2 * STATES)
    assert len(list(path.parent.iterdir())) == 1


def test_a_file_that_is_not_worth_keeping_is_replaced(path):
    path.write_bytes(b"torn")
    writer, _ = written(path)
    assert not writer.publish_once(path)
    writer.replace(path)
    np.testing.assert_array_equal(load_file(path)["hidden_states"], STATES)
    assert len(list(path.parent.iterdir())) == 1


def test_without_hard_links_the_file_is_renamed(path, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "no links")

    monkeypatch.setattr(os, "link", refuse)
    writer, _ = written(path)
    assert writer.publish_once(path)
    second, _ = written(path, -STATES)
    assert not second.publish_once(path)
    np.testing.assert_array_equal(load_file(path)["hidden_states"], STATES)


def test_an_abandoned_file_is_gone_and_a_published_one_stays(path):
    writer, _ = written(path)
    writer.abandon()
    assert not list(path.parent.iterdir())
    writer, _ = written(path)
    writer.publish(path)
    writer.abandon()
    assert path.exists()


def test_states_that_are_not_whole_are_refused(path):
    writer = SampleFileWriter(temporary(path), SCHEMA)
    writer.append(memoryview(bytes(95)))
    with pytest.raises(ValueError, match="95 bytes are no whole states of 96 bytes"):
        writer.finish(TOKENS)
    writer.abandon()


def test_what_the_volume_refuses_is_a_typed_error(path, monkeypatch):
    path.touch()
    with pytest.raises(OutputUnwritableError):
        SampleFileWriter(path / "below", SCHEMA)
    path.unlink()
    writer, _ = written(path)

    def refuse(_):
        raise OSError(5, "no")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OutputIOError):
        writer.publish_once(path)
    writer.abandon()
    assert not list(path.parent.iterdir())
