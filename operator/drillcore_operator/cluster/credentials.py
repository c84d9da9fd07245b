"""Who we are at the API server: the pod's service account, or a kubeconfig outside a cluster."""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

from drillcore_operator.errors import SettingsError

SERVICE_ACCOUNT_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True)
class Credentials:
    """Address of the API server, TLS, and a token or a client certificate."""

    url: str
    tls: ssl.SSLContext | None
    """None: plain HTTP."""
    token: str | None = None
    token_file: Path | None = None
    """Read for every request, because kubelet renews it."""

    @classmethod
    def find(cls, environment: Mapping[str, str]) -> Self:
        """$KUBECONFIG, else the pod's service account, else ~/.kube/config."""
        if explicit := environment.get("KUBECONFIG"):
            return cls.from_kubeconfig(Path(explicit))
        if host := environment.get("KUBERNETES_SERVICE_HOST"):
            return cls.from_service_account(host, environment["KUBERNETES_SERVICE_PORT"])
        return cls.from_kubeconfig(Path.home() / ".kube" / "config")

    @classmethod
    def from_service_account(cls, host: str, port: str) -> Self:
        """The account that kubelet mounts into a pod."""
        tls = ssl.create_default_context(cafile=SERVICE_ACCOUNT_FOLDER / "ca.crt")
        return cls(service_url(host, port), tls, token_file=SERVICE_ACCOUNT_FOLDER / "token")

    @classmethod
    def from_kubeconfig(cls, path: Path) -> Self:
        """The current context of a kubeconfig with a token or a client certificate.

        Raises:
            SettingsError: there is no such file, or it logs in by a plugin.
        """
        if not path.is_file():
            raise SettingsError(f"no kubeconfig at {path}: set KUBECONFIG, or run the operator in a cluster")
        config = yaml.safe_load(path.read_text())
        context = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], context["cluster"])["cluster"]
        user = _named(config["users"], context["user"])["user"]
        if "exec" in user or "auth-provider" in user:
            raise SettingsError(f"{path} logs in by a plugin; use a token or a client certificate")
        token_file = Path(user["tokenFile"]) if "tokenFile" in user else None
        return cls(cluster["server"], _tls(cluster, user), user.get("token"), token_file)

    def authorization(self) -> dict[str, str]:
        """The header of a request, with the token as it is now."""
        token = self.token_file.read_text().strip() if self.token_file else self.token
        return {"Authorization": f"Bearer {token}"} if token else {}


def service_url(host: str, port: str) -> str:
    """URL of the API server from what kubelet puts into the environment of every container."""
    address = f"[{host}]" if ":" in host else host
    return f"https://{address}:{port}"


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)


def _tls(cluster: dict[str, Any], user: dict[str, Any]) -> ssl.SSLContext | None:
    if not cluster["server"].startswith("https:"):
        return None
    data = cluster.get("certificate-authority-data")
    context = ssl.create_default_context(
        cafile=cluster.get("certificate-authority"), cadata=base64.b64decode(data).decode() if data else None
    )
    if "client-certificate" in user:
        context.load_cert_chain(user["client-certificate"], user["client-key"])
    elif "client-certificate-data" in user:
        _load_inline(context, user["client-certificate-data"], user["client-key-data"])
    return context


def _load_inline(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Ssl reads certificates from files only; this one is gone at once."""
    descriptor, name = tempfile.mkstemp()
    try:
        with os.fdopen(descriptor, "wb") as pem:
            pem.write(base64.b64decode(certificate) + b"\n" + base64.b64decode(key))
        context.load_cert_chain(name)
    finally:
        Path(name).unlink()
