"""Readers on mutated files: data or our error, never anything else, never an allocation by a number in a file."""

import json
import tracemalloc
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import drillcore
from drillcore.checksum import check_file
from drillcore.commit import Commit
from drillcore.part_info import FileInfo
from drillcore.recover import recover

MAX_ALLOCATED_BYTES = 8_000_000
"""A hundred times the output; a number taken from a mutated file is easily a million times larger."""
HUGE = [0, 1, -1, 2**31, 2**40, 2**62, 2**63 - 1, 2**63, 2**64, 10**40, 1.5, 1e308, 1e999]
STRANGE = [None, True, [], {}, "", "x", "../../../etc/passwd", "\ud800", [[0, 1]], [[0, 2**62]], {"a": []}, *HUGE]


@dataclass
class Fuzzed:
    """A good output, kept in memory; one file of it is replaced at a time."""

    maker: object
    files: dict[Path, bytes]

    def restore(self):
        for path, data in self.files.items():
            if not path.exists() or path.read_bytes() != data:
                replace_file(path, data)


def replace_file(path, data):
    """By a new file: a reader may still map the old one."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


@pytest.fixture(scope="module", params=["committed", "unfinished", "a file a row"])
def fuzzed(request, session_maker):
    per_sample = request.param == "a file a row"
    kind = {"layout": "PerSample"} if per_sample else {"positions": "LossMask"}
    maker = session_maker.vary(**kind, shard_count=2, special_token_ids=(0, 1, 2))
    maker.root = session_maker.root / request.param
    committed = request.param != "unfinished"
    maker.shard([[0, 2, 3], [1]], quarantined=[4], loss_mask=True, commit=committed)
    maker.shard([[5, 6]], shard=1, loss_mask=True, commit=committed)
    maker.complete()
    read_everything(maker.root, maker.manifest)  # What is imported on use is no allocation by a file.
    files = {path: path.read_bytes() for path in sorted(maker.root.rglob("*")) if path.is_file()}
    return Fuzzed(maker, {path: data for path, data in files.items() if data})


def places_in(value, place=()):
    """Every place in a JSON value, as a path of keys."""
    yield place
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inner:
        yield from places_in(child, (*place, key))


def put(value, place, new):
    if not place:
        return new
    value[place[0]] = put(value[place[0]], place[1:], new)
    return value


@st.composite
def other_json(draw, data):
    """JSON with one value replaced, doubled or left out."""
    value = json.loads(data)
    place = draw(st.sampled_from(list(places_in(value))))
    parent = value
    for key in place[:-1]:
        parent = parent[key]
    if place and draw(st.integers(0, 4)) == 0:
        del parent[place[-1]]
    else:
        value = put(value, place, draw(st.sampled_from(STRANGE)))
    return json.dumps(value).encode()


@st.composite
def other_bytes(draw, data):
    """Bytes with a piece changed, cut out, doubled, or the end missing."""
    begin = draw(st.integers(0, len(data) - 1))
    end = min(len(data), begin + draw(st.sampled_from([1, 1, 1, 8, 64, 4096])))
    match draw(st.integers(0, 4)):
        case 0:
            middle = draw(st.binary(min_size=end - begin, max_size=end - begin))
        case 1:
            middle = b""
        case 2:
            middle = data[begin:end] * 2
        case 3:
            middle = draw(st.sampled_from([b"\xff", b"\0", b"\x7f"])) * (end - begin)
        case _:
            return data[:begin]
    return data[:begin] + middle + data[end:]


@st.composite
def other_header(draw, data):
    """A safetensors file whose header is other JSON; the tensors stay."""
    length = int.from_bytes(data[:8], "little")
    header = draw(other_json(data[8 : 8 + length]))
    header = header.ljust(length) if draw(st.booleans()) else header
    return len(header).to_bytes(8, "little") + header + data[8 + length :]


@st.composite
def other_lines(draw, data):
    """Lines of JSON, one of them changed."""
    lines = data.splitlines()
    at = draw(st.integers(0, len(lines) - 1))
    lines[at] = draw(other_json(lines[at]))
    return b"\n".join(lines) + b"\n"


def mutation_of(path, data):
    structured = {".json": other_json, ".jsonl": other_lines, ".safetensors": other_header}[path.suffix](data)
    return st.one_of(structured, structured, other_bytes(data))


def trust(maker, path, data):
    """Give a changed index or quarantine file a right checksum in its commit: the reader must look further."""
    if path.parent == maker.layout.samples:
        return
    shard = maker.layout.shard(int(path.parent.name))
    if not shard.commit.exists():
        return
    commit = json.loads(shard.commit.read_bytes())
    info = FileInfo(path.name, len(data), xxhash.xxh3_64_hexdigest(data)).to_json()
    for key in ("index", "quarantine"):
        if commit[key]["name"] == path.name:
            commit[key] = info
    replace_file(shard.commit, json.dumps(commit).encode())


def read_everything(root, manifest):
    """Each way of reading; anything but a DrillcoreError leaves this function."""
    for read in (
        lambda: drillcore.verify(root),
        lambda: drillcore.inspect(root).to_json(),
        lambda: drillcore.clean(root),
        lambda: recover(drillcore.Layout(root).shard(0), manifest),
        lambda: read_samples(drillcore.open(root)),
        lambda: read_samples(drillcore.open(root, allow_incomplete=True)),
    ):
        with suppress(drillcore.DrillcoreError):
            read()


def read_samples(output):
    assert len(list(output.shuffled(0))) == len(output)
    for sample in output:
        assert sample.hidden_states.shape[1:] == (len(output.columns), output.manifest.hidden_size)
        assert sample.token_ids.sum() is not None
        assert str(sample.layer(output.columns[0]))
        assert str(sample)
        if sample.loss_mask is not None:
            assert len(sample.loss_mask) == len(sample.token_ids)
    for batch in output.activations(output.columns[-1], 5, 8):
        assert batch.shape[1] == output.manifest.hidden_size
    assert output.quarantined() is not None


def fuzz(fuzzed, data):
    path = data.draw(st.sampled_from(sorted(fuzzed.files)), label="file")
    changed = data.draw(mutation_of(path, fuzzed.files[path]), label="content")
    trusted = data.draw(st.booleans(), label="with a right checksum")
    try:
        replace_file(path, changed)
        if trusted and path.suffix != ".json":
            trust(fuzzed.maker, path, changed)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        read_everything(fuzzed.maker.root, fuzzed.maker.manifest)
        assert tracemalloc.get_traced_memory()[1] - before < MAX_ALLOCATED_BYTES
    finally:
        fuzzed.restore()


@pytest.fixture(autouse=True)
def traced():
    tracemalloc.start()
    yield
    tracemalloc.stop()


UNHURRIED = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None}


@given(data=st.data())
@settings(max_examples=150, derandomize=True, **UNHURRIED)
def test_readers_of_a_mutated_file_give_data_or_our_error(fuzzed, data):
    fuzz(fuzzed, data)


@pytest.mark.long
@pytest.mark.timeout(3600)
@given(data=st.data())
@settings(max_examples=5_000, **UNHURRIED)
def test_readers_of_ten_thousand_mutated_files_give_data_or_our_error(fuzzed, data):
    fuzz(fuzzed, data)


def test_the_output_that_is_fuzzed_is_good(fuzzed):
    """Else every mutation would be refused for the same reason, and show nothing."""
    output = drillcore.open(fuzzed.maker.root, allow_incomplete=True)
    assert output.rows.tolist() == [0, 1, 2, 3, 5, 6]
    read_samples(output)
    assert output.complete == drillcore.verify(fuzzed.maker.root).ok
    if output.complete:
        commit = Commit.load(fuzzed.maker.layout.shard(0).commit)
        check_file(fuzzed.maker.layout.shard(0).named(commit.index.name), commit.index)
