"""The operator as a process of its own, as in its image, with a user's kubeconfig."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from drillcore_testcluster.ports import free_ports
from drillcore_testcluster.processes import Process

SERVER_IMAGE = "drillcore/server:test"
SIDECAR_IMAGE = "drillcore/sidecar:test"


def operator_process(folder: Path, kubeconfig: Path, **settings: str) -> Process:
    """The operator, not started; `settings` are its variables without their prefix."""
    variables = {
        "SERVER_IMAGE": SERVER_IMAGE,
        "SIDECAR_IMAGE": SIDECAR_IMAGE,
        "ADVERTISE_URL": "http://drillcore-api.drillcore.svc",
        "API_PORT": str(free_ports(1)[0]),
    } | {name.upper(): value for name, value in settings.items()}
    environment = os.environ | {f"DRILLCORE_OPERATOR_{name}": value for name, value in variables.items()}
    environment["KUBECONFIG"] = str(kubeconfig)
    return Process("operator", sys.executable, ["-m", "drillcore_operator"], folder, environment)
