"""The chart as helm renders it."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from drillcore_testcluster import binaries, helm4
from drillcore_testcluster.errors import MissingPiece
from drillcore_testcluster.helm import Helm, Manifest


@pytest.fixture(scope="session", params=["helm3", "helm4"])
def helm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    try:
        binary = helm4.find() if request.param == "helm4" else binaries.find(binaries.HELM)
        return Helm(binary, tmp_path_factory.mktemp("helm"))
    except MissingPiece as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def of_kind() -> Callable[[list[Manifest], str], list[Manifest]]:
    return lambda manifests, kind: [manifest for manifest in manifests if manifest["kind"] == kind]
