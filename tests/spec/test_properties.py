"""Any spec survives JSON and YAML, and any bytes give a job or a SpecError."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from drillcore_spec import ExtractionJobSpec, Problem, SpecError, load_job, parse_spec

BASE = yaml.safe_load((Path(__file__).parent / "rule_cases.yaml").read_text())["base"]
BASE_TEXT = yaml.safe_dump(BASE)

names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
texts = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20)
sizes = st.from_regex(r"[1-9][0-9]{0,3}(\.[0-9]{1,3})?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?", fullmatch=True)
label_maps = st.dictionaries(names, names, max_size=3)


def objects(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with any of the fields."""
    return st.fixed_dictionaries({}, optional=fields)


specs = st.fixed_dictionaries(
    {
        "model": st.fixed_dictionaries({"uri": names.map("hf://org/{}".format)}, optional={"secretName": names}),
        "dataset": st.fixed_dictionaries(
            {"uri": names.map("pvc://claim/{}".format), "columns": st.just({"messages": "m"})},
            optional={
                "split": texts,
                "maxSamples": st.integers(1, 2**40 - 1),
                "overlong": st.sampled_from(["Truncate", "Skip", "Fail"]),
                "chatTemplateKwargs": st.dictionaries(texts, texts.map(json.dumps), max_size=3),
            },
        ),
        "extraction": st.fixed_dictionaries(
            {"layers": st.lists(st.integers(0, 4096), min_size=1, max_size=5, unique=True)},
            optional={"finalNorm": st.booleans(), "positions": st.sampled_from(["All", "Last", "LossMask"])},
        ),
        "output": st.fixed_dictionaries({"claimName": names}, optional={"partSize": sizes, "sizeLimit": sizes}),
    },
    optional={
        "parallelism": st.integers(1, 3),
        "shards": st.integers(3, 100_000).map(lambda count: {"count": count}),
        "suspend": st.booleans(),
        "failurePolicy": objects(
            maxFailedShards=st.none() | st.just(0), maxQuarantinedPercent=st.floats(0, 100) | st.integers(0, 100)
        ),
        "queue": st.none() | names.map(lambda name: {"name": name}),
        "podTemplate": objects(
            labels=label_maps,
            runAsUser=st.none() | st.integers(1, 2**31 - 1),
            fsGroup=st.none() | st.integers(0, 2**31 - 1),
            leaveToCluster=st.lists(st.sampled_from(["RunAsUser", "FsGroup"]), max_size=2),
            env=st.lists(st.fixed_dictionaries({"name": st.just("A"), "value": texts}), max_size=2),
        ),
    },
).filter(lambda spec: spec.get("parallelism", 1) <= spec.get("shards", {}).get("count", 1))


@settings(deadline=None)
@given(specs)
def test_a_spec_is_the_same_after_json(data: dict[str, Any]) -> None:
    spec = parse_spec(json.dumps(data))
    assert parse_spec(spec.to_json()) == spec
    assert parse_spec(spec.to_json()).to_json() == spec.to_json()


@settings(deadline=None)
@given(specs)
def test_a_spec_is_the_same_from_a_yaml_file_and_from_json(data: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.yaml"
        # In quotes, because PyYAML writes strings such as 08 and 1e3 plain, which are numbers to kubectl and here.
        path.write_text(yaml.safe_dump(BASE | {"spec": data}, allow_unicode=True, default_style='"'))
        from_yaml = load_job(path).spec
        path.write_text(json.dumps(BASE | {"spec": data}, indent=1))
        assert from_yaml == load_job(path).spec == parse_spec(json.dumps(data))


def problems_of(read: Callable[[], object]) -> tuple[Problem, ...]:
    """What a SpecError lists; nothing when a job is read. Any other exception goes through."""
    try:
        read()
    except SpecError as error:
        return error.problems
    return ()


def assert_job_or_spec_error(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.yaml"
        path.write_bytes(content)
        for problem in problems_of(lambda: load_job(path)):
            assert problem.source == str(path)
            assert problem.message.startswith("expected")


@settings(deadline=None)
@given(st.binary(max_size=200))
@example(b"\xef\xbb\xbf")
@example(b"\x00")
@example(b"? ? ?")
@example(b"spec: " + b"9" * 5000)
@example(b"- &a\n- *a\n- <<: *a")
@example(b"%YAML 9.9\n---\na")
@example(b"a: .inf\n? |\n  b\n: -.nan")
@example(b"{a: !!int 3.5, b: !!bool maybe, c: !!float x, d: !!binary x}")
def test_any_bytes_give_a_job_or_a_spec_error(content: bytes) -> None:
    assert_job_or_spec_error(content)


@settings(deadline=None, max_examples=300)
@given(
    st.integers(0, len(BASE_TEXT)),
    st.integers(0, 12),
    st.text(st.sampled_from("{}[]:,&*!|>-?'\"%#<~ \n\t09aZ.\u00e9\U0001f600"), max_size=8),
)
def test_any_damage_to_a_job_gives_a_job_or_a_spec_error(start: int, num_removed: int, inserted: str) -> None:
    assert_job_or_spec_error((BASE_TEXT[:start] + inserted + BASE_TEXT[start + num_removed :]).encode())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
paths = st.sampled_from(
    ["model", "dataset", "extraction", "generation", "output", "engine", "shards", "parallelism", "suspend", "ring",
     "failurePolicy", "queue", "server", "sidecar", "podTemplate"]
)  # fmt: skip


@settings(deadline=None)
@given(paths, json_values)
def test_any_value_in_place_of_a_field_gives_a_spec_or_a_spec_error(path: str, value: Any) -> None:
    text = json.dumps(BASE["spec"] | {path: value})
    assert all(problem.location[0] == "spec" for problem in problems_of(lambda: parse_spec(text)))


@settings(deadline=None)
@given(specs)
def test_python_names_and_yaml_keys_build_the_same_spec(data: dict[str, Any]) -> None:
    spec = parse_spec(json.dumps(data))
    assert ExtractionJobSpec(**spec.model_dump(by_alias=False)) == spec
