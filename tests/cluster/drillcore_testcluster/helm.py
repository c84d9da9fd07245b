"""helm as a user runs it, with a home of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[3] / "charts" / "drillcore"
TIMEOUT_S = 120.0
KUBE_VERSION = "1.34.0"
"""For rendering without a cluster."""

Manifest = dict[str, Any]
Result = subprocess.CompletedProcess[str]


class Helm:
    """helm with one user's kubeconfig, or without a cluster."""

    def __init__(self, binary: Path, home: Path, kubeconfig: Path | None = None) -> None:
        self._binary = binary
        self._environment = os.environ | {f"HELM_{kind}_HOME": str(home / kind) for kind in ("CACHE", "CONFIG", "DATA")}
        self._environment["KUBECONFIG"] = str(kubeconfig or home / "no-cluster")

    def run(self, *arguments: str) -> Result:
        """Runs helm and gives its code and output, whatever they are."""
        argv = [str(self._binary), *arguments]
        return subprocess.run(argv, env=self._environment, capture_output=True, text=True, timeout=TIMEOUT_S)

    def __call__(self, *arguments: str) -> str:
        """Runs helm, which must succeed, and gives its standard output."""
        result = self.run(*arguments)
        assert result.returncode == 0, f"helm {' '.join(arguments)}: {result.stderr}"
        return result.stdout

    def template(self, *values: str, namespace: str = "drillcore-system", release: str = "drillcore") -> Result:
        """Renders the chart with `--set-json` values."""
        arguments = ["template", release, str(CHART), "--namespace", namespace, "--kube-version", KUBE_VERSION]
        return self.run(*arguments, *settings(values))

    def render(self, *values: str, namespace: str = "drillcore-system", release: str = "drillcore") -> list[Manifest]:
        """The manifests, hooks included."""
        result = self.template(*values, namespace=namespace, release=release)
        assert result.returncode == 0, result.stderr
        return manifests_in(result.stdout)


class _NoDuplicates(yaml.SafeLoader):
    """A key that stands twice is an error, as at the API server."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"a key stands twice: {keys}"
        return super().construct_mapping(node, deep)


def manifests_in(text: str) -> list[Manifest]:
    """The objects of a stream of YAML documents."""
    return [manifest for manifest in yaml.load_all(text, _NoDuplicates) if manifest]


def settings(values: Sequence[str]) -> list[str]:
    """`--set-json` for each value."""
    return [part for value in values for part in ("--set-json", value)]
