"""The CustomResourceDefinition of ExtractionJob, made from the models."""

from __future__ import annotations

from typing import Any, Final

import yaml

from drillcore_spec.job import MUTABLE_FIELDS, ExtractionJob, ExtractionJobSpec
from drillcore_spec.names import (
    API_GROUP,
    API_VERSION_NAME,
    KIND,
    PLURAL,
    SHORT_NAME,
    SINGULAR,
)
from drillcore_spec.status import ExtractionJobStatus
from drillcore_spec.structural_schema import Schema, cel_rules, structural_schema

CRD_NAME: Final = f"{PLURAL}.{API_GROUP}"

_COLUMNS: Final[tuple[dict[str, Any], ...]] = (
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
    {"name": "Progress", "type": "string", "jsonPath": ".status.progress.summary"},
    {"name": "Shards", "type": "string", "jsonPath": ".status.shards.summary"},
    {"name": "Reason", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Succeeded")].reason'},
    {"name": "Model", "type": "string", "jsonPath": ".spec.model.uri", "priority": 1},
    {"name": "Output", "type": "string", "jsonPath": ".status.output.uri", "priority": 1},
    {"name": "Failed", "type": "string", "jsonPath": ".status.shards.failedIndexes", "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
)

_GUARD: Final = """\
{{- /* Made by `make crd`: edit the models, not this file. */ -}}
{{- if .Values.crds.install }}
"""
_KEEP: Final = """\
  {{- if .Values.crds.keep }}
  annotations:
    helm.sh/resource-policy: keep
  {{- end }}
"""


def custom_resource_definition() -> dict[str, Any]:
    """The CRD as the API server takes it."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": CRD_NAME},
        "spec": {
            "group": API_GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": SINGULAR,
                "shortNames": [SHORT_NAME],
            },
            "versions": [
                {
                    "name": API_VERSION_NAME,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": list(_COLUMNS),
                    "schema": {"openAPIV3Schema": _resource_schema()},
                }
            ],
        },
    }


def chart_template() -> str:
    """The CRD as a template of the chart, behind `crds.install`, kept on uninstall with `crds.keep`."""
    definition = custom_resource_definition()
    spec = definition.pop("spec")
    return _GUARD + to_yaml(definition) + _KEEP + to_yaml({"spec": spec}) + "{{- end }}\n"


def _resource_schema() -> Schema:
    """The schema of the whole resource; apiVersion, kind and metadata are the API server's own."""
    spec = structural_schema(ExtractionJobSpec)
    spec["x-kubernetes-validations"] = [*_immutability(spec), *spec["x-kubernetes-validations"]]
    return {
        "description": ExtractionJob.__doc__,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
            "spec": spec,
            "status": structural_schema(ExtractionJobStatus),
        },
        "x-kubernetes-validations": cel_rules(ExtractionJob.rules),
    }


def _immutability(spec: Schema) -> list[dict[str, str]]:
    """A rule for each field that must not change; an optional one can be neither dropped nor added."""
    always_there = {key for key, schema in spec["properties"].items() if "default" in schema}
    always_there |= set(spec["required"])
    return [_unchanged(key, key in always_there) for key in spec["properties"] if key not in MUTABLE_FIELDS]


def _unchanged(key: str, always_there: bool) -> dict[str, str]:
    same = f"self.{key} == oldSelf.{key}"
    presence = f"has(self.{key}) == has(oldSelf.{key}) && (!has(self.{key}) || {same})"
    message = (
        f"expected {key} to stay as it is: of a job's spec, only {', '.join(sorted(MUTABLE_FIELDS))} may change;"
        " apply a new ExtractionJob with the same output, and it goes on from the committed rows"
    )
    return {"rule": same if always_there else presence, "message": message, "fieldPath": f".{key}"}


class _Dumper(yaml.SafeDumper):
    """Writes shared values out each time: no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def to_yaml(value: Any) -> str:
    """YAML with the keys in their order and nothing abbreviated."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)
