"""Reading a job: from a file, or from the environment of a pod."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from drillcore_spec.base import SpecModel
from drillcore_spec.errors import Location, Problem, Source, SpecError
from drillcore_spec.fields import model_at, walk
from drillcore_spec.job import ExtractionJob, ExtractionJobSpec
from drillcore_spec.names import API_VERSION, ENV_JOB, KIND
from drillcore_spec.wording import reword, shown
from drillcore_spec.yaml_source import MAX_SOURCE_BYTES, read_document

M = TypeVar("M", bound=SpecModel)

_KEY_MARK = "[key]"
"""pydantic's last part of the location of an error in a map's key."""


def load_job(path: str | Path) -> ExtractionJob:
    """The job in a YAML or JSON file, the same that `kubectl apply -f` takes.

    Raises:
        SpecError: the file cannot be read, or is not exactly one valid ExtractionJob.
    """
    return read_job(path)[0]


def read_job(path: str | Path) -> tuple[ExtractionJob, Source]:
    """`load_job`, and where each field stands, for errors that are found later.

    Raises:
        SpecError: as for `load_job`.
    """
    data, lines = read_document(_read_text(Path(path)), str(path))
    source = Source(str(path), lines)
    return validate_job(data, source), source


def parse_spec(json_text: str) -> ExtractionJobSpec:
    """The spec in the environment variable DRILLCORE_JOB, as `ExtractionJobSpec.to_json` writes it.

    Raises:
        SpecError: the text is not JSON, or not a valid spec.
    """
    source = Source(ENV_JOB)
    try:
        data = json.loads(json_text)
    except (ValueError, RecursionError) as error:
        raise SpecError([source.problem(f"expected JSON; got {shown(json_text)} ({error})")]) from None
    return _validate(ExtractionJobSpec, data, source, ("spec",))


def validate_job(data: Any, source: Source) -> ExtractionJob:
    """The job in plain data; a status in it, which only an operator can judge, is left out.

    Raises:
        SpecError: it is of another kind or version, or not valid; all problems are listed.
    """
    if not isinstance(data, dict):
        raise SpecError([source.problem(f"expected an {KIND}; got {shown(data)}")])
    for key, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if data.get(key) != expected:
            got = shown(data[key]) if key in data else "nothing"
            raise SpecError([source.problem(f"expected {expected}; got {got}", (key,))])
    return _validate(ExtractionJob, {key: data[key] for key in data if key != "status"}, source, ())


def _validate(model: type[M], data: Any, source: Source, prefix: Location) -> M:
    try:
        return model.model_validate(data, by_alias=True, by_name=False)
    except ValidationError as error:
        details = error.errors(include_url=False)
    problems = [_problem(model, detail, source, prefix) for detail in details]
    problems.sort(key=lambda problem: problem.line or 0)
    raise SpecError(problems)


def _problem(model: type[SpecModel], detail: Any, source: Source, prefix: Location) -> Problem:
    location = tuple(part for part in detail["loc"] if part != _KEY_MARK)
    known = _known_keys(model, location[:-1]) if detail["type"] == "extra_forbidden" else {}
    return source.problem(reword(detail, known), (*prefix, *location))


def _known_keys(model: type[SpecModel], location: Location) -> dict[str, str]:
    """What may stand at `location`, and the names that stand elsewhere with the path that leads there."""
    elsewhere: dict[str, str] = {}
    for entry in walk(model):
        name = entry.path.rpartition(".")[2]
        if not entry.path.startswith("status"):
            elsewhere.setdefault(name, entry.path)
    here = model_at(model, location)
    return elsewhere | {key: key for key in (here.fields_by_key() if here else {})}


def _read_text(path: Path) -> str:
    source = Source(str(path))
    try:
        with path.open("rb") as file:
            content = file.read(MAX_SOURCE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError([source.problem(f"expected a readable job file; got: {reason}")]) from None
    if len(content) > MAX_SOURCE_BYTES:
        raise SpecError([source.problem(f"expected a job of at most {MAX_SOURCE_BYTES} bytes; got more")])
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        message = f"expected UTF-8 text; got the byte 0x{content[error.start]:02X}"
        raise SpecError([Problem(message, (), str(path), line)]) from None
