"""A job file gives the job, or one error that lists everything with file, line and field."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from drillcore_spec import SpecError, load_job, parse_spec, read_job

Write = Callable[[str | bytes], Path]

HEAD = """\
apiVersion: drillcore.dev/v1alpha1
kind: ExtractionJob
metadata: {name: a}
"""
SPEC = """\
spec:
  model: {uri: "hf://org/name"}
  dataset:
    uri: pvc://datasets/a.jsonl
    columns: {text: t}
  extraction: {layers: [2, 16]}
  output: {claimName: states}
"""


def problems(path: Path) -> list[str]:
    with pytest.raises(SpecError) as error:
        load_job(path)
    lines = str(error.value).splitlines()
    assert len(lines) == len(error.value.problems)
    return [line.removeprefix(str(path)) for line in lines]


def test_a_job_is_read_with_its_defaults(write_job: Write) -> None:
    job = load_job(write_job(HEAD + SPEC))
    assert job.metadata.name == "a"
    assert job.spec.extraction.layers == (2, 16)
    assert job.spec.engine.max_num_batched_tokens == 8192
    assert job.spec.pod_template.run_as_user == 65532


def test_json_with_tabs_and_escaped_characters_is_read_as_well(write_job: Write) -> None:
    data = yaml.safe_load(HEAD + SPEC)
    data["spec"]["dataset"]["columns"]["text"] = "caf\u00e9 \U0001f600"
    job = load_job(write_job(json.dumps(data, indent="\t")))
    assert job.spec.dataset.columns.text == "caf\u00e9 \U0001f600"


def test_every_wrong_field_is_listed_with_its_line(write_job: Write) -> None:
    path = write_job(
        HEAD
        + """\
spec:
  model: {uri: "ftp://x", revision: 12, secret_name: token}
  layers: [1]
  dataset:
    uri: pvc://datasets/a.jsonl
    columns: {text: t, messages: m}
    maxSample: 4
  extraction:
    layers:
    - 2
    - -1
    - 1.5
    positions: all
  output: {subPath: /a, partSize: 4}
  ring: 3
  parallelism: 0
"""
    )
    assert problems(path) == [
        ":5: spec.model.uri: expected hf://NAME, file:///ABSOLUTE/PATH or pvc://CLAIM/PATH, without spaces;"
        ' got "ftp://x"',
        ":5: spec.model.revision: expected text; got 12 (write it in quotes)",
        ":5: spec.model.secret_name: expected a known field; got 'secret_name'; did you mean secretName?",
        ":6: spec.layers: expected a known field; got 'layers'; did you mean spec.extraction.layers?",
        ":9: spec.dataset.columns: expected exactly one of text, messages and inputIds",
        ":10: spec.dataset.maxSample: expected a known field; got 'maxSample'; did you mean maxSamples?",
        ":14: spec.extraction.layers[1]: expected at least 0; got -1",
        ":15: spec.extraction.layers[2]: expected an integer; got 1.5",
        ":16: spec.extraction.positions: expected 'All', 'Last', 'Mean', 'LossMask', 'Window' or 'Stride'; got \"all\"",
        ":17: spec.output.claimName: expected a value; got nothing",
        ':17: spec.output.subPath: expected a relative path such as runs/llama, without spaces; got "/a"',
        ":17: spec.output.partSize: expected text; got 4 (write it in quotes)",
        ":18: spec.ring: expected a mapping; got 3",
        ":19: spec.parallelism: expected at least 1; got 0",
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", ": expected an ExtractionJob; got an empty file"),
        ("# nothing\n---\n", ": expected an ExtractionJob; got an empty file"),
        (HEAD + SPEC + "---\n" + HEAD, ":12: expected one document; a second one begins here"),
        ("- 1\n- 2\n", ":1: expected an ExtractionJob; got a list of 2"),
        ("kind: Job\napiVersion: batch/v1\n", ':2: apiVersion: expected drillcore.dev/v1alpha1; got "batch/v1"'),
        (
            HEAD.replace("v1alpha1", "v2"),
            ':1: apiVersion: expected drillcore.dev/v1alpha1; got "drillcore.dev/v2"',
        ),
        (HEAD.replace("ExtractionJob", "Job"), ':2: kind: expected ExtractionJob; got "Job"'),
        ("spec: {}\n", ":1: apiVersion: expected drillcore.dev/v1alpha1; got nothing"),
        (HEAD, ":1: spec: expected a value; got nothing"),
        (HEAD + "spec: [\n", ":5: expected YAML; got while parsing a flow node expected the node content,"
         " but found '<stream end>'"),
        ("a: 1\n\tb: 2\n", ":2: expected YAML; got while scanning for the next token found character '\\t'"
         " that cannot start any token"),
        (b"a: \xff\n", ":1: expected UTF-8 text; got the byte 0xFF"),
        ("a: 1\nb: \x01\n", ":2: expected YAML; got the character U+0001"),
        ("a: 1\na: 2\n", ":2: a: expected each key once; got it a second time"),
        ("? [a]\n: 1\n", ":1: expected a string as key; got a list or mapping"),
        ("a: !!python/name:os.system x\n", ":1: a: expected a string, number, boolean or null;"
         " got 'x' as python/name:os.system"),
        ('{"a": "\\ud800"}', ":1: a: expected text; got half of a surrogate pair"),
        ("a: *b\n", ":1: expected YAML; got found undefined alias 'b'"),
        ("[" * 50, ":1: expected YAML; got more than 40 levels of nesting"),
        ("&a [*a]\n", ":1: expected a job; got aliases that expand to far more than that"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else None,
)  # fmt: skip
def test_what_is_not_one_job_gives_one_clear_error(content: str | bytes, expected: str, write_job: Write) -> None:
    assert problems(write_job(content)) == [expected]


def test_aliases_that_multiply_are_refused(write_job: Write) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    (problem,) = problems(write_job("\n".join(lines)))
    assert "aliases that expand" in problem


def test_a_file_of_more_than_a_mebibyte_is_refused(write_job: Write) -> None:
    assert problems(write_job("#" * (1024 * 1024 + 1))) == [": expected a job of at most 1048576 bytes; got more"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert problems(tmp_path / "no.yaml") == [": expected a readable job file; got: No such file or directory"]


def test_a_folder_is_not_a_job(tmp_path: Path) -> None:
    assert problems(tmp_path) == [": expected a readable job file; got: Is a directory"]


def test_anchors_and_merge_keys_work_as_for_kubectl(write_job: Write) -> None:
    labels = "  podTemplate: {labels: &l {a: b, c: d}, annotations: {<<: *l, c: e}, nodeSelector: {<<: [{a: z}, *l]}}\n"
    template = load_job(write_job(HEAD + SPEC + labels)).spec.pod_template
    assert template.annotations == {"a": "b", "c": "e"}
    assert template.node_selector == {"a": "z", "c": "d"}


def test_scalars_are_json_types_only(write_job: Write) -> None:
    selector = "  podTemplate: {nodeSelector: {day: 2030-01-01, hex: 0x10, 7: seven}}\n"
    template = load_job(write_job(HEAD + SPEC + selector)).spec.pod_template
    assert template.node_selector == {"day": "2030-01-01", "hex": "0x10", "7": "seven"}


@pytest.mark.parametrize("number", ["08", "1e3", "1.", ".5", "-0"])
def test_what_kubectl_reads_as_a_number_is_no_text(number: str, write_job: Write) -> None:
    (problem,) = problems(write_job(HEAD + SPEC.replace("claimName: states", f"claimName: {number}")))
    assert problem.startswith(":10: spec.output.claimName: expected text; got")


def test_a_wrong_key_of_a_map_is_named(write_job: Write) -> None:
    (problem,) = problems(write_job(HEAD + SPEC + "  podTemplate:\n    labels:\n      a b: c\n"))
    assert problem.startswith(":13: spec.podTemplate.labels.a b: expected a label key")


def test_null_is_the_same_as_leaving_out(write_job: Write) -> None:
    job = load_job(write_job(HEAD + SPEC + "  queue: null\n  parallelism:\n  engine: ~\n"))
    assert job == load_job(write_job(HEAD + SPEC))


def test_null_and_leave_to_cluster_unset_the_ids(write_job: Write) -> None:
    by_null = load_job(write_job(HEAD + SPEC + "  podTemplate: {runAsUser: null}\n")).spec.pod_template
    assert (by_null.run_as_user, by_null.fs_group) == (None, 65532)
    by_name = load_job(write_job(HEAD + SPEC + "  podTemplate: {leaveToCluster: [FsGroup]}\n")).spec.pod_template
    assert (by_name.run_as_user, by_name.fs_group) == (65532, None)


def test_python_names_are_no_keys(write_job: Write) -> None:
    path = write_job(HEAD + SPEC.replace("claimName", "claim_name"))
    assert problems(path) == [
        ":10: spec.output.claimName: expected a value; got nothing",
        ":10: spec.output.claim_name: expected a known field; got 'claim_name'; did you mean claimName?",
    ]


def test_what_the_api_server_adds_is_accepted(write_job: Write) -> None:
    data = yaml.safe_load(HEAD + SPEC)
    data["metadata"] |= {"uid": "1", "generation": 2, "managedFields": [{"manager": "kubectl"}], "labels": {"a": "b"}}
    data["status"] = {"phase": "Running", "fieldOfALaterVersion": 2}
    job = load_job(write_job(yaml.safe_dump(data)))
    assert job.metadata.labels == {"a": "b"}


def test_later_errors_find_their_line_in_the_source(write_job: Write) -> None:
    _, source = read_job(write_job(HEAD + SPEC))
    assert source.problem("x", ("spec", "extraction", "layers", 1)).line == 9
    assert source.problem("x", ("spec", "engine", "maxModelLen")).line == 4
    assert source.problem("x").line == 1


def test_the_spec_in_the_environment_is_read(job_data: Callable[..., dict[str, Any]]) -> None:
    spec = parse_spec(json.dumps(job_data()["spec"]))
    assert spec.output.claim_name == "states"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 'DRILLCORE_JOB: expected JSON; got "" (Expecting value: line 1 column 1 (char 0))'),
        ("[]", "DRILLCORE_JOB: spec: expected a mapping; got an empty list"),
        ("[" * 100_000, "DRILLCORE_JOB: expected JSON; got"),
        ('{"model": {"uri": 1}}', "DRILLCORE_JOB: spec.model.uri: expected text; got 1 (write it in quotes)"),
    ],
    ids=["empty", "list", "deep", "field"],
)
def test_a_wrong_spec_in_the_environment_is_named(text: str, expected: str) -> None:
    with pytest.raises(SpecError) as error:
        parse_spec(text)
    assert str(error.value).splitlines()[0].startswith(expected)
