"""The Kubernetes API for tests: plain dictionaries over httpx, one method for each verb.

Tests keep objects as the API server sends them, so that a field which a client library would drop or rename
is seen. What the product itself does with the API is in drillcore_operator, never here.
"""

from __future__ import annotations

import base64
import json
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import httpx
import yaml

from drillcore_testcluster.errors import ApiError
from drillcore_testcluster.kinds import Kind, kind_named, kind_of

REQUEST_TIMEOUT_S = 30.0
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"

Object = dict[str, Any]
"""A Kubernetes object as JSON."""


class KubeApi:
    """One user's connection to an API server. May be used by several threads."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    @classmethod
    def from_kubeconfig(cls, path: Path) -> Self:
        """Connects as the kubeconfig's current user; knows client certificates and tokens."""
        return cls(client_of_kubeconfig(path, REQUEST_TIMEOUT_S))

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def is_ready(self) -> bool:
        """Whether the API server calls itself ready."""
        return self._client.get("/readyz").is_success

    def request(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        content_type: str = "application/json",
        **params: str,
    ) -> Object:
        """Sends one request and gives the answer's JSON; raises ApiError for anything but success."""
        content = None if body is None else json.dumps(body)
        response = self._client.request(
            method, path, content=content, params=params, headers={"Content-Type": content_type}
        )
        if not response.is_success:
            raise ApiError(method, path, _status(response), response.status_code)
        answer: Object = response.json()
        return answer

    def get(self, kind: str, name: str, *, namespace: str | None = None) -> Object:
        """One object."""
        return self.request("GET", kind_named(kind).path(namespace, name))

    def find(self, kind: str, name: str, *, namespace: str | None = None) -> Object | None:
        """One object, or None if there is none of that name."""
        try:
            return self.get(kind, name, namespace=namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    def list(self, kind: str, *, namespace: str | None = None, **params: str) -> list[Object]:
        """All objects of a kind; `params` are the API's, such as labelSelector."""
        items: list[Object] = self.request("GET", kind_named(kind).path(namespace), **params)["items"]
        return items

    def create(self, body: Object, *, namespace: str | None = None, **params: str) -> Object:
        """Creates an object in its own namespace or the given one."""
        kind, place, _ = _address(body, namespace)
        return self.request("POST", kind.path(place), body=body, **params)

    def replace(self, body: Object, *, subresource: str = "") -> Object:
        """Replaces an object, or its subresource."""
        kind, place, name = _address(body, None)
        return self.request("PUT", kind.path(place, name, subresource), body=body)

    def apply(self, body: Object, *, manager: str, force: bool = False, subresource: str = "", **params: str) -> Object:
        """Server-side apply by a field manager."""
        kind, place, name = _address(body, None)
        params |= {"fieldManager": manager, "force": str(force).lower()}
        return self.request("PATCH", kind.path(place, name, subresource), body=body, content_type=APPLY, **params)

    def patch(
        self, kind: str, name: str, body: object, *, namespace: str | None = None, subresource: str = ""
    ) -> Object:
        """Merge patch for a mapping, JSON patch for a list."""
        content_type = JSON_PATCH if isinstance(body, list) else MERGE_PATCH
        path = kind_named(kind).path(namespace, name, subresource)
        return self.request("PATCH", path, body=body, content_type=content_type)

    def patch_strategic(self, kind: str, name: str, body: object, namespace: str, subresource: str = "") -> Object:
        """Strategic merge patch: conditions merge by type, as kubelet sends them."""
        path = kind_named(kind).path(namespace, name, subresource)
        return self.request("PATCH", path, body=body, content_type=STRATEGIC_MERGE_PATCH)

    def evict(self, pod: Object) -> None:
        """Evicts a pod through the API, as `kubectl drain` does."""
        metadata = {key: pod["metadata"][key] for key in ("name", "namespace")}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        path = kind_named("Pod").path(metadata["namespace"], metadata["name"], "eviction")
        self.request("POST", path, body=body)

    def create_token(
        self,
        namespace: str,
        account: str,
        *,
        audience: str | None = None,
        pod: Object | None = None,
        lifetime_s: int = 600,
    ) -> str:
        """A token of a service account: for the API server or another audience, bound to a pod if there is one."""
        spec: Object = {"expirationSeconds": lifetime_s, "audiences": [audience] if audience else []}
        if pod is not None:
            about = {key: pod["metadata"][key] for key in ("name", "uid")}
            spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", **about}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = kind_named("ServiceAccount").path(namespace, account, "token")
        return str(self.request("POST", path, body=body)["status"]["token"])

    def delete(self, kind: str, name: str, *, namespace: str | None = None, **params: str) -> Object:
        """Deletes an object; `params` such as gracePeriodSeconds and propagationPolicy."""
        return self.request("DELETE", kind_named(kind).path(namespace, name), **params)

    def watch(self, kind: str, *, namespace: str | None = None, timeout_s: int = 30, **params: str) -> Iterator[Object]:
        """Events `{type, object}` of a kind until `timeout_s` is over; existing objects come as ADDED."""
        path = kind_named(kind).path(namespace)
        params |= {"watch": "true", "timeoutSeconds": str(timeout_s)}
        with self._client.stream("GET", path, params=params, timeout=timeout_s + 5) as response:
            if not response.is_success:
                response.read()
                raise ApiError("WATCH", path, _status(response), response.status_code)
            for line in response.iter_lines():
                yield json.loads(line)


def client_of_kubeconfig(path: Path, timeout_s: float) -> httpx.Client:
    """An HTTP client that logs in as the kubeconfig's current user."""
    return httpx.Client(**_client_settings(path, timeout_s))


def async_client_of_kubeconfig(path: Path, timeout_s: float) -> httpx.AsyncClient:
    """The same for an event loop."""
    return httpx.AsyncClient(**_client_settings(path, timeout_s))


def _client_settings(path: Path, timeout_s: float) -> dict[str, Any]:
    config = yaml.safe_load(path.read_text())
    context = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    user = _named(config["users"], context["user"])["user"]
    return {
        "base_url": cluster["server"],
        "verify": _tls(cluster, user),
        "headers": {"Authorization": f"Bearer {user['token']}"} if "token" in user else {},
        "timeout": timeout_s,
        "limits": httpx.Limits(max_connections=None),
        "trust_env": False,
    }


def _named(entries: list[Object], name: str) -> Object:
    return next(entry for entry in entries if entry["name"] == name)


def _tls(cluster: Object, user: Object) -> ssl.SSLContext | bool:
    if not cluster["server"].startswith("https:"):
        return False
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    context = ssl.create_default_context(cadata=authority)
    if "client-certificate-data" in user:
        with tempfile.NamedTemporaryFile("wb") as pem:
            pem.write(base64.b64decode(user["client-certificate-data"]))
            pem.write(base64.b64decode(user["client-key-data"]))
            pem.flush()
            context.load_cert_chain(pem.name)
    return context


def _address(body: Object, namespace: str | None) -> tuple[Kind, str | None, str]:
    kind = kind_of(body)
    metadata = body["metadata"]
    place = namespace or metadata.get("namespace", "default")
    return kind, place if kind.namespaced else None, metadata.get("name", "")


def _status(response: httpx.Response) -> Object:
    try:
        status: Object = response.json()
    except json.JSONDecodeError:
        return {"message": response.text}
    return status
