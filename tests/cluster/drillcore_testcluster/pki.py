"""Certificates of one test cluster: its own authority, server certificates, client certificates by name.

Everything is made with the `openssl` command, so that tests need no further package. Kubernetes reads the
user name from the subject's CN and the groups from its O fields
(https://kubernetes.io/docs/reference/access-authn-authz/authentication/#x509-client-certificates).
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from drillcore_testcluster.errors import MissingPiece

_VALID_DAYS = "30"


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its private key, PEM files."""

    certificate: Path
    key: Path


class Authority:
    """The certificate authority of one test cluster; its files stand in one folder."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("openssl") is None:
            raise MissingPiece("`openssl` is not on the PATH: it makes the test cluster's certificates")
        folder.mkdir()
        self._folder = folder
        self.root = KeyPair(folder / "ca.crt", folder / "ca.key")
        self.service_account_key = folder / "service-account.key"
        subject = ["-subj", "/CN=drillcore-test-ca", "-days", _VALID_DAYS]
        _openssl("req", "-x509", *_new_key(self.root.key), *subject, "-out", self.root.certificate)
        _openssl("genpkey", "-algorithm", "RSA", "-out", self.service_account_key)

    def server(self, name: str, hosts: Sequence[str], addresses: Sequence[str]) -> KeyPair:
        """A server certificate for these DNS names and IP addresses."""
        names = [f"DNS:{host}" for host in hosts] + [f"IP:{address}" for address in addresses]
        extensions = ["-addext", f"subjectAltName={','.join(names)}", "-addext", "extendedKeyUsage=serverAuth"]
        return self._issue(name, f"/CN={name}", extensions)

    def client(self, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """A client certificate that Kubernetes reads as this user in these groups."""
        organizations = "".join(f"/O={group}" for group in groups)
        return self._issue(
            user.replace(":", "-"), f"{organizations}/CN={user}", ["-addext", "extendedKeyUsage=clientAuth"]
        )

    def kubeconfig(self, url: str, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig file, certificates included, for this user."""
        pair = self.client(user, groups)
        credentials = {
            "client-certificate-data": _base64(pair.certificate),
            "client-key-data": _base64(pair.key),
        }
        return write_kubeconfig(pair.key.with_suffix(".kubeconfig"), self._cluster(url), credentials)

    def token_kubeconfig(self, url: str, name: str, token: str) -> Path:
        """A kubeconfig file for the owner of a bearer token."""
        return write_kubeconfig(self._folder / f"{name}.kubeconfig", self._cluster(url), {"token": token})

    def _cluster(self, url: str) -> dict[str, str]:
        return {"server": url, "certificate-authority-data": _base64(self.root.certificate)}

    def _issue(self, name: str, subject: str, extensions: Sequence[str]) -> KeyPair:
        pair = KeyPair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        signed: list[str | Path] = ["-CA", self.root.certificate, "-CAkey", self.root.key, "-days", _VALID_DAYS]
        leaf: list[str | Path] = [
            "-addext",
            "basicConstraints=critical,CA:FALSE",
            *extensions,
            "-out",
            pair.certificate,
        ]
        _openssl("req", "-x509", *_new_key(pair.key), "-subj", subject, *signed, *leaf)
        return pair


def write_kubeconfig(path: Path, cluster: dict[str, str], user: dict[str, str]) -> Path:
    """Writes a kubeconfig of one cluster, one user and one context (JSON, which is YAML too)."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    path.write_text(json.dumps(document))
    path.chmod(0o600)
    return path


def _new_key(path: Path) -> list[str | Path]:
    return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-keyout", path]


def _openssl(*arguments: str | Path) -> None:
    result = subprocess.run(["openssl", *arguments], capture_output=True, text=True)
    if result.returncode != 0:
        raise MissingPiece(f"openssl {arguments[0]} failed (version 3 is needed): {result.stderr}")


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
