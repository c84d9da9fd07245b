import json
import os

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import drillcore
from drillcore.tensor_file import TensorFile
from drillcore.tensor_header import tensor_file_bytes

TENSORS = {
    "a": np.arange(3, dtype=np.uint8),
    "b": np.arange(6, dtype=np.int64).reshape(2, 3),
    "empty": np.empty((0, 5), np.float32),
}


def file_with(tmp_path, header, data):
    encoded = json.dumps(header).encode() if not isinstance(header, bytes) else header
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + data)
    return path


def entry(begin, end, dtype="U8", shape=None):
    return {"dtype": dtype, "shape": [end - begin] if shape is None else shape, "data_offsets": [begin, end]}


def test_a_file_of_the_safetensors_library_is_read(tmp_path):
    save_file(TENSORS, tmp_path / "x", {"made": "elsewhere"})
    file = TensorFile(tmp_path / "x")
    assert file.metadata == {"made": "elsewhere"}
    assert "a" in file
    assert "c" not in file
    assert np.array_equal(file.array("b", "I64", None, 3), TENSORS["b"])
    assert file.array("empty", "F32", None, 5).shape == (0, 5)


def test_the_safetensors_library_reads_what_we_write(tmp_path):
    (tmp_path / "x").write_bytes(tensor_file_bytes(TENSORS, {"format": "test"}))
    read = load_file(tmp_path / "x")
    assert all(np.array_equal(read[name], tensor) for name, tensor in TENSORS.items())


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"a": entry(0, 4), "b": entry(5, 8)}, "gap or an overlap before a tensor at 5"),
        ({"a": entry(0, 5), "b": entry(4, 8)}, "gap or an overlap before a tensor at 4"),
        ({"a": entry(1, 8)}, "gap or an overlap"),
        ({"a": entry(0, 7)}, "bytes long by its header"),
        ({"a": entry(0, 9)}, "bytes long by its header"),
        ({"a": entry(0, 8, shape=[9])}, "as many bytes as the shape needs"),
        ({"a": entry(0, 8, dtype="I64", shape=[2])}, "as many bytes as the shape needs"),
        ({"a": entry(0, 8, shape=[2**62, 4])}, "as many bytes as the shape needs"),
        ({"a": entry(8, 0, shape=[8])}, "as many bytes as the shape needs"),
        ({"a": entry(0, 8, dtype="F8_E4M3")}, "must be one of F64"),
        ({"a": {**entry(0, 8), "data_offsets": [0, 4, 8]}}, "must be"),
        ({"a": entry(0, 8, shape=[1] * 8 + [8])}, "at most 8 dimensions"),
        ({"a": {"dtype": "U8", "shape": [8]}}, "`a.data_offsets` is missing"),
        ({"__metadata__": {"x": 1}, "a": entry(0, 8)}, "`__metadata__.x` must be a string"),
        (b"[]", "must be an object|expected an object"),
        (b"{", "expected JSON"),
    ],
)
def test_a_header_that_lies_is_refused(tmp_path, header, message):
    with pytest.raises(drillcore.FormatError, match=message):
        TensorFile(file_with(tmp_path, header, bytes(8)))


@pytest.mark.parametrize("data", [b"", b"1234567", (2**63).to_bytes(8, "little"), (100).to_bytes(8, "little") + b"{}"])
def test_a_file_that_is_too_short_is_refused(tmp_path, data):
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(drillcore.FormatError):
        TensorFile(tmp_path / "x")


def test_a_tensor_of_another_type_or_shape_is_refused_and_an_impossible_one_too(tmp_path):
    header = {"a": entry(0, 8), "none": entry(8, 8, shape=[0, 2**62, 2**62])}
    file = TensorFile(file_with(tmp_path, header, bytes(8)))
    for arguments in (("a", "I32", None), ("a", "U8", 7), ("a", "U8", None, None), ("b", "U8", None)):
        with pytest.raises(drillcore.FormatError, match=f"tensor `{arguments[0]}`"):
            file.array(*arguments)
    with pytest.raises(drillcore.FormatError, match="impossible shape"):
        file.array("none", "U8", None, None, None)


def test_views_outlive_the_file_and_its_name(tmp_path):
    path = file_with(tmp_path, {"a": entry(0, 8)}, bytes(range(8)))
    view = TensorFile(path).array("a", "U8", 8)
    os.unlink(path)
    assert view.tolist() == list(range(8))
    assert not view.flags.writeable


def test_bytes_are_read_as_they_are_mapped_and_a_file_that_was_cut_off_is_told(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(tensor_file_bytes({"a": np.arange(100), "b": np.ones(3, np.uint8)}, {}))
    file = TensorFile(path)
    out = np.zeros(20, np.int64)
    file.read_into("a", 80, out.data.cast("B"))
    assert out.tolist() == list(range(10, 30))
    os.truncate(path, 200)
    with pytest.raises(drillcore.FormatError, match="must be longer"):
        file.read_into("a", 80, out.data.cast("B"))
