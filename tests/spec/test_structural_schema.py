"""The schema keeps Kubernetes' rules for structural schemas; a real API server tries it in tests/cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from drillcore_spec.base import SpecModel
from drillcore_spec.forms import Flag, ShortText
from drillcore_spec.resource_definition import custom_resource_definition
from drillcore_spec.structural_schema import structural_schema

ALLOWED = {
    "description", "type", "format", "nullable", "default", "enum", "pattern", "minLength", "maxLength", "minimum",
    "maximum", "minItems", "maxItems", "maxProperties", "required", "items", "additionalProperties", "properties",
    "x-kubernetes-validations", "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
}  # fmt: skip


def resource_schema() -> dict[str, Any]:
    schema: dict[str, Any] = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for key, inner in schema.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{key}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from nodes(schema[key], f"{path}[]")


NODES = dict(nodes(resource_schema()))


def test_only_keys_of_structural_schemas_are_used() -> None:
    assert {key for schema in NODES.values() for key in schema} <= ALLOWED


def test_every_value_has_one_type() -> None:
    assert [path for path, schema in NODES.items() if not isinstance(schema.get("type"), str)] == []


def test_properties_and_additional_properties_exclude_each_other() -> None:
    assert [path for path, schema in NODES.items() if {"properties", "additionalProperties"} <= set(schema)] == []


@pytest.mark.parametrize(
    ("kind", "bound"),
    [("array", "maxItems"), ("integer", "maximum"), ("number", "maximum"), ("string", "maxLength")],
)
def test_everything_is_bounded(kind: str, bound: str) -> None:
    own = {path: schema for path, schema in NODES.items() if path.startswith((".spec", ".status"))}
    unbounded = [path for path, schema in own.items() if schema["type"] == kind and bound not in schema]
    assert [path for path in unbounded if "enum" not in own[path]] == []


def test_maps_are_bounded() -> None:
    maps = {path: schema for path, schema in NODES.items() if "additionalProperties" in schema}
    assert ".spec.podTemplate.labels" in maps
    assert [path for path, schema in maps.items() if "maxProperties" not in schema] == []


def test_every_field_is_described() -> None:
    own = {path: schema for path, schema in NODES.items() if path.startswith((".spec", ".status"))}
    assert [path for path, schema in own.items() if not schema.get("description") and not path.endswith("]")] == []


def test_an_object_whose_fields_all_have_defaults_is_filled_in() -> None:
    assert NODES[".spec.server"]["default"] == {}
    assert NODES[".spec.server.resources"]["default"] == {}
    assert "default" not in NODES[".spec.queue"]
    assert "default" not in NODES[".spec.model"]


def test_null_is_a_value_where_the_model_says_so() -> None:
    nullable = {path for path, schema in NODES.items() if schema.get("nullable")}
    assert nullable == {".spec.podTemplate.runAsUser", ".spec.podTemplate.fsGroup"}


def test_conditions_are_a_map_by_type() -> None:
    conditions = NODES[".status.conditions"]
    assert conditions["x-kubernetes-list-type"] == "map"
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]


def test_a_union_is_refused() -> None:
    class WithUnion(SpecModel):
        field: ShortText | Flag

    with pytest.raises(ValueError, match="expected no unions"):
        structural_schema(WithUnion)


def test_an_untyped_value_is_refused() -> None:
    class WithAny(SpecModel):
        field: Any

    with pytest.raises(ValueError, match="expected a value of one type"):
        structural_schema(WithAny)
