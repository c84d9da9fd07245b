"""pydantic's JSON schema of a model turned into a Kubernetes structural schema.

A structural schema has no `$ref`, no unions, no `const`, no `propertyNames`, and says for each value what
type it has. What pydantic cannot express is added here: rules, defaults of whole objects, integer formats.
Source: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final

from drillcore_spec.base import SpecModel
from drillcore_spec.fields import inner_model
from drillcore_spec.forms import WORDS_OF_PATTERN
from drillcore_spec.rules import Rule, cel_string

Schema = dict[str, Any]

_DROPPED: Final = frozenset({"title", "$ref", "additionalProperties", "patternProperties", "propertyNames"})
_KEY_ORDER: Final = (
    "description", "type", "format", "nullable", "default", "enum", "pattern", "minLength", "maxLength",
    "minimum", "maximum", "minItems", "maxItems", "maxProperties", "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys", "required", "items", "additionalProperties", "properties",
    "x-kubernetes-validations",
)  # fmt: skip
_MAX_INT32: Final = 2**31 - 1


def structural_schema(model: type[SpecModel]) -> Schema:
    """The structural schema of a model, with everything inlined.

    Raises:
        ValueError: the model holds something that no structural schema can say (a union, an untyped value).
    """
    raw = model.model_json_schema(by_alias=True, mode="validation")
    return _object(model, raw, raw.get("$defs", {}))


def cel_rules(rules: tuple[Rule, ...]) -> list[dict[str, str]]:
    """`x-kubernetes-validations` of rules."""
    return [_cel_rule(rule) for rule in rules]


def _cel_rule(rule: Rule) -> dict[str, str]:
    entry = {"rule": rule.cel, "message": rule.message}
    if rule.message_cel is not None:
        entry["messageExpression"] = rule.message_cel
    if rule.field:
        entry["fieldPath"] = "".join(f".{part}" for part in rule.field)
    return entry


def _object(model: type[SpecModel], raw: Schema, defs: Mapping[str, Schema]) -> Schema:
    properties = {}
    for key, info in model.fields_by_key().items():
        inner, _ = inner_model(info.annotation)
        schema = _value(raw["properties"][key], inner, defs)
        if inner is not None and info.default_factory is inner:
            # The API server fills in an object's own defaults only if the object is there.
            schema["default"] = {}
        properties[key] = _ordered(schema)
    result: Schema = {"type": "object", "properties": properties, "description": raw.get("description", "")}
    if raw.get("required"):
        result["required"] = list(raw["required"])
    if model.rules:
        result["x-kubernetes-validations"] = cel_rules(model.rules)
    return _ordered(result)


def _value(raw: Schema, inner: type[SpecModel] | None, defs: Mapping[str, Schema]) -> Schema:
    """The schema of a field's value; `inner` is the model of it or of its items."""
    raw = _resolve(_without_null(raw), defs)
    if raw.get("type") == "object" and inner is not None:
        return _object(inner, raw, defs) | _own(raw, "description")
    schema = {key: value for key, value in raw.items() if key not in _DROPPED}
    if "type" not in schema:
        raise ValueError(f"expected a value of one type, for a structural schema; got {raw}")
    if schema["type"] == "array":
        schema["items"] = _value(raw["items"], inner, defs)
    if schema["type"] == "object":
        schema |= _map_values(raw, defs)
    if schema.get("default", ...) in (None, [], ()):
        del schema["default"]
    return _ordered(_with_format(schema))


def _map_values(raw: Schema, defs: Mapping[str, Schema]) -> Schema:
    """A map's values; the pattern of its keys, which a structural schema cannot say, as a rule."""
    patterns = raw.get("patternProperties")
    if not patterns:
        return {"additionalProperties": _value(raw["additionalProperties"], None, defs)}
    ((pattern, values),) = patterns.items()
    rule = f"self.all(key, key.matches({cel_string(pattern)}))"
    message = f"expected each key to be {WORDS_OF_PATTERN[pattern]}"
    return {
        "additionalProperties": _value(values, None, defs),
        "x-kubernetes-validations": [{"rule": rule, "message": message}],
    }


def _without_null(raw: Schema) -> Schema:
    """`anyOf: [X, null]` as X; what stands beside anyOf (description, default) goes over X."""
    if "anyOf" not in raw:
        return raw
    kinds: list[Schema] = [kind for kind in raw["anyOf"] if kind != {"type": "null"}]
    if len(kinds) != 1:
        raise ValueError(f"expected no unions in the spec; got {raw['anyOf']}")
    return kinds[0] | {key: value for key, value in raw.items() if key != "anyOf"}


def _resolve(raw: Schema, defs: Mapping[str, Schema]) -> Schema:
    if "$ref" not in raw:
        return raw
    return defs[raw["$ref"].rpartition("/")[2]] | raw


def _with_format(schema: Schema) -> Schema:
    match schema["type"]:
        case "integer":
            schema["format"] = "int32" if schema["maximum"] <= _MAX_INT32 else "int64"
        case "number":
            schema["format"] = "double"
    return schema


def _own(raw: Schema, *keys: str) -> Schema:
    return {key: raw[key] for key in keys if key in raw}


def _ordered(schema: Schema) -> Schema:
    """The keys in the order in which people read them; descriptions on one line."""
    if "description" in schema:
        schema["description"] = " ".join(inspect.cleandoc(schema["description"]).split())
    known = {key: schema[key] for key in _KEY_ORDER if schema.get(key) not in (None, "")}
    return known | {key: value for key, value in schema.items() if key not in _KEY_ORDER}
