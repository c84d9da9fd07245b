"""docs/field-reference.md, made from the CRD."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import yaml

from drillcore_spec.forms import WORDS_OF_PATTERN
from drillcore_spec.job import MUTABLE_FIELDS
from drillcore_spec.names import API_VERSION, KIND
from drillcore_spec.resource_definition import custom_resource_definition
from drillcore_spec.structural_schema import Schema

_HEAD: Final = f"""\
# Field reference

Every field of `{KIND}` (`{API_VERSION}`). `drillcore run` and `kubectl apply` read the same
file and hold it to the same rules; `kubectl explain exj.spec` shows the same text.

Only {", ".join(f"`{name}`" for name in sorted(MUTABLE_FIELDS))} may change after creation. For
anything else, apply a new {KIND} with the same output: it goes on from the committed rows. In YAML,
sizes and CPUs stand in quotes when they would read as a number: `cpu: "4"`.

<!-- Made by `make crd`: edit the models, not this file. -->
"""
_AS_IN_KUBERNETES: Final = ("spec.podTemplate.affinity", "spec.podTemplate.tolerations", "spec.podTemplate.env")
"""Fields whose insides are Kubernetes' own and documented there."""
_TABLE: Final = "| field | type | default | meaning |\n|---|---|---|---|\n"


def field_reference() -> str:
    """The whole page, in Markdown."""
    schema = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    sections = [
        *_sections("spec", schema["properties"]["spec"]),
        *_sections("status", schema["properties"]["status"]),
    ]
    return "\n".join([_HEAD, *sections, _name_rules(schema)])


def _sections(path: str, schema: Schema) -> Iterator[str]:
    """A section for the object at `path`, and one for each object in it."""
    required = schema.get("required", [])
    rows = [_row(path, key, value, key in required) for key, value in schema["properties"].items()]
    yield f"## {path}\n\n{schema['description']}\n\n{_TABLE}{''.join(rows)}{_rules(schema)}"
    for key, value in schema["properties"].items():
        if _has_section(f"{path}.{key}", value):
            yield from _sections(f"{path}.{key}", value.get("items", value))


def _has_section(path: str, schema: Schema) -> bool:
    return "properties" in schema.get("items", schema) and path not in _AS_IN_KUBERNETES


def _row(path: str, key: str, schema: Schema, required: bool) -> str:
    kind = _type(schema)
    if _has_section(f"{path}.{key}", schema):
        kind = f"[{kind}](#{f'{path}{key}'.replace('.', '').lower()})"
    elif "properties" in schema.get("items", schema):
        kind += ", as in Kubernetes"
    default = "**required**" if required else _default(schema)
    meaning = schema["description"].replace("|", "\\|")
    return f"| `{key}` | {kind} | {default} | {meaning} |\n"


def _default(schema: Schema) -> str:
    if schema.get("default", {}) == {}:
        return ""
    return f"`{yaml.safe_dump(schema['default']).splitlines()[0]}`"


def _type(schema: Schema) -> str:
    match schema:
        case {"enum": values}:
            return " \\| ".join(f"`{value}`" for value in values)
        case {"type": "array", "items": items}:
            return f"list of {_type(items)}"
        case {"type": "object", "additionalProperties": _}:
            return "map of strings"
        case {"type": "integer" | "number" as kind, "minimum": low, "maximum": high}:
            return f"{kind}, {low:,.15g} to {high:,.15g}"
        case {"type": "string", "pattern": pattern} if pattern in WORDS_OF_PATTERN:
            return WORDS_OF_PATTERN[pattern]
        case {"type": "string", "maxLength": longest}:
            return f"string, at most {longest}"
    return str(schema["type"])


def _rules(schema: Schema) -> str:
    """The conditions between fields, without the immutability that the head tells."""
    rules = [rule for rule in schema.get("x-kubernetes-validations", ()) if "oldSelf" not in rule["rule"]]
    if not rules:
        return ""
    lines = (f"- {rule['message'].removeprefix('expected ')}\n" for rule in rules)
    return "\nThe API server and `drillcore run` expect:\n\n" + "".join(lines)


def _name_rules(schema: dict[str, Any]) -> str:
    return f"## metadata.name\n{_rules(schema)}"
