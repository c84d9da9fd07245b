import hashlib
import json
from dataclasses import replace

import pytest

import drillcore
from drillcore.json_fields import parse_json
from drillcore.manifest import Manifest, differing_fields
from drillcore.token_ranges import TokenStride, TokenWindow


def test_a_manifest_comes_back_from_its_file(maker):
    maker.claim()
    assert Manifest.load(maker.layout.manifest) == maker.manifest


def test_the_identity_is_the_sha256_of_sorted_json_without_spaces(maker):
    identity = json.loads(maker.manifest.to_bytes())
    del identity["engineVersion"], identity["dataset"]["maxSamples"]
    data = json.dumps(identity, sort_keys=True, separators=(",", ":")).encode()
    assert maker.manifest.identity_sha256 == hashlib.sha256(data).hexdigest()


def test_the_engine_version_is_no_part_of_the_identity(maker):
    assert replace(maker.manifest, engine_version="9.9").identity_sha256 == maker.manifest.identity_sha256


@pytest.mark.parametrize(("shards", "same"), [(1, True), (2, False)])
def test_max_samples_is_identity_only_with_several_shards(maker, shards, same):
    manifest = replace(maker.manifest, shard_count=shards)
    longer = replace(manifest, dataset={**manifest.dataset, "maxSamples": 10})
    assert (longer.identity_sha256 == manifest.identity_sha256) is same


def test_columns_are_the_layers_in_order_and_then_the_final_norm(maker):
    assert maker.manifest.columns == (2, 0, "finalNorm")
    assert replace(maker.manifest, final_norm=False).columns == (2, 0)


def test_a_manifest_of_version_0_is_refused_with_both_versions_and_what_to_do(tmp_path):
    old = {"formatVersion": 0, "model": "SmolLM2", "layers": [2, 0], "dtype": "float32"}
    (tmp_path / "manifest.json").write_text(json.dumps(old))
    for read in (drillcore.open, drillcore.verify, drillcore.inspect, drillcore.clean):
        with pytest.raises(drillcore.UnsupportedVersionError, match=r"version 0 .* reads version 1; use the drillcore"):
            read(tmp_path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("layers", []),
        ("layers", [2, 2]),
        ("layers", [-1]),
        ("hiddenSize", 0),
        ("storeDtype", "F64"),
        ("positions", "Some"),
        ("layout", "Loose"),
        ("shards", {"count": 0}),
        ("shards", {"count": 10**9}),
        ("dataset", {"uri": "file:///x", "files": [{"path": "x"}]}),
        ("surplus", 1),
        ("window", {"start": 0, "end": 4}),
        ("stride", {"step": 2, "offset": 0}),
    ],
)
def test_a_wrong_field_is_named(maker, tmp_path, field, value):
    manifest = {**maker.manifest.to_json(), "finalNorm": False, field: value}
    with pytest.raises(drillcore.FormatError, match=field):
        Manifest.from_json(manifest, tmp_path / "manifest.json")


RANGED = [
    {"positions": "Window", "window": TokenWindow(3, 9)},
    {"positions": "Stride", "stride": TokenStride(step=4, offset=1)},
]


@pytest.mark.parametrize("fields", RANGED)
def test_window_and_stride_come_back_and_are_identity(make, maker, fields):
    ranged = make(**fields)
    ranged.claim()
    assert Manifest.load(ranged.layout.manifest) == ranged.manifest
    names = differing_fields(maker.manifest.identity(), ranged.manifest.identity())
    assert names == list(fields)


@pytest.mark.parametrize(
    ("positions", "field", "value"),
    [
        ("Window", "window", {"start": 4, "end": 4}),
        ("Window", "window", {"start": -1, "end": 4}),
        ("Window", "window", None),
        ("Stride", "stride", {"step": 0, "offset": 0}),
        ("Stride", "stride", {"step": 1}),
    ],
)
def test_a_range_that_selects_nothing_is_refused(maker, tmp_path, positions, field, value):
    manifest = {**maker.manifest.to_json(), "positions": positions, field: value}
    with pytest.raises(drillcore.FormatError, match=field):
        Manifest.from_json(manifest, tmp_path / "manifest.json")


def test_differing_fields_are_dotted_names():
    ours = {"a": 1, "b": {"c": 2, "d": [1]}, "e": 1}
    theirs = {"a": 1, "b": {"c": 3, "d": [1, 2]}, "f": 1}
    assert differing_fields(ours, theirs) == ["b.c", "b.d", "e", "f"]
    assert differing_fields({"a": 1}, {"a": True}) == ["a"]


def test_manifest_json_is_readable_by_people(maker):
    lines = maker.manifest.to_bytes().decode().splitlines()
    assert lines[1] == '  "formatVersion": 1,'
    assert parse_json(maker.manifest.to_bytes(), maker.layout.manifest) == maker.manifest.to_json()
