"""The API server with the ExtractionJob resource."""

from __future__ import annotations

import pytest

from drillcore_spec.resource_definition import CRD_NAME, custom_resource_definition
from drillcore_testcluster.kube_api import KubeApi


@pytest.fixture(scope="session")
def crd(api: KubeApi) -> dict[str, object]:
    """The established CRD as the API server has it."""
    applied = api.apply(custom_resource_definition(), manager="test", force=True)
    if not _established(applied):
        events = api.watch("CustomResourceDefinition", fieldSelector=f"metadata.name={CRD_NAME}")
        applied = next(event["object"] for event in events if _established(event["object"]))
    return applied


def _established(crd: dict[str, object]) -> bool:
    status = crd.get("status")
    assert isinstance(status, dict)
    conditions = status.get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)
