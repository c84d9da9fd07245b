"""What the operator asks of the API server: each method is one verb of its Role."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any, Protocol

from drillcore_operator.cluster.connection import JSON, Connection
from drillcore_operator.errors import NotFound
from drillcore_operator.keys import JobKey
from drillcore_spec import names

Document = dict[str, Any]

PAGE_SIZE = 500
"""Objects in one answer of a list."""
MERGE_PATCH = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
METADATA_ONLY = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
KUEUE_API = "kueue.x-k8s.io/v1beta1"
LABEL_WORKLOAD_JOB_UID = "kueue.x-k8s.io/job-uid"


class ClusterApi(Protocol):
    """What the reconciler needs of a cluster."""

    async def list_resources(self, namespace: str | None) -> list[Document]:
        """All ExtractionJobs of a namespace; None: of all."""

    async def list_keys(self, namespace: str | None) -> list[JobKey]:
        """The names of all ExtractionJobs of a namespace; None: of all."""

    async def get_resource(self, namespace: str, name: str) -> Document | None:
        """An ExtractionJob; None: there is none."""

    async def apply_status(self, resource: Document, status: Document) -> None:
        """Makes `status` the status of the ExtractionJob with this uid; raises Conflict for another uid."""

    async def delete_resource(self, namespace: str, name: str, uid: str) -> None:
        """Deletes the ExtractionJob with this uid."""

    async def get_job(self, namespace: str, name: str) -> Document | None:
        """A Job; None: there is none."""

    async def create_job(self, manifest: Document) -> Document:
        """Creates a Job; raises Conflict if one of its name is there, Refused if it may not be."""

    async def patch_job(self, namespace: str, name: str, *, suspended: bool, parallelism: int) -> None:
        """Sets the two fields that change."""

    async def delete_job(self, namespace: str, name: str, uid: str) -> None:
        """Deletes the Job with this uid and, in the background, its pods."""

    async def list_pods(self, namespace: str, job_uid: str) -> list[Document]:
        """The pods of a Job."""

    async def list_events(self, namespace: str, kind: str, name: str) -> list[Document]:
        """Events about one object."""

    async def get_claim(self, namespace: str, name: str) -> Document | None:
        """A PersistentVolumeClaim; None: there is none."""

    async def get_event(self, namespace: str, name: str) -> Document | None:
        """An Event; None: there is none."""

    async def create_event(self, manifest: Document) -> None:
        """Creates an Event; raises Conflict if one of its name is there."""

    async def count_event(self, namespace: str, name: str, patch: Document) -> None:
        """Counts an Event up."""

    async def set_workload_active(self, namespace: str, job_uid: str, *, active: bool) -> None:
        """Tells Kueue whether the Job's workload may run; without a workload yet, nothing happens."""


class Cluster:
    """`ClusterApi` at a real API server."""

    def __init__(self, connection: Connection, *, kueue_enabled: bool = False) -> None:
        self._connection = connection
        self._kueue_enabled = kueue_enabled

    async def list_resources(self, namespace: str | None) -> list[Document]:
        """All ExtractionJobs, page by page."""
        return await self._list(_path(names.API_VERSION, names.PLURAL, namespace), {})

    async def list_keys(self, namespace: str | None) -> list[JobKey]:
        """Their metadata alone, page by page: specs and statuses of thousands would be read for nothing."""
        path = _path(names.API_VERSION, names.PLURAL, namespace)
        keys: list[JobKey] = []
        async for page in self._pages(path, {}, accept=METADATA_ONLY):
            keys += [JobKey(each["metadata"]["namespace"], each["metadata"]["name"]) for each in page]
        return keys

    async def get_resource(self, namespace: str, name: str) -> Document | None:
        """One ExtractionJob."""
        return await self._find(_resource(namespace, name))

    async def apply_status(self, resource: Document, status: Document) -> None:
        """Server-side apply: fields that we no longer give vanish, those of others stay."""
        metadata = resource["metadata"]
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            # With the uid, a job that was deleted and made anew meanwhile does not get the old one's status.
            "metadata": {key: metadata[key] for key in ("name", "namespace", "uid")},
            "status": status,
        }
        params = {"fieldManager": names.FIELD_MANAGER, "force": "true"}
        path = f"{_resource(metadata['namespace'], metadata['name'])}/status"
        await self._connection.request("PATCH", path, body=body, content_type=APPLY, params=params)

    async def delete_resource(self, namespace: str, name: str, uid: str) -> None:
        """Deletes an ExtractionJob; its children follow in the background."""
        await self._delete(_resource(namespace, name), uid)

    async def get_job(self, namespace: str, name: str) -> Document | None:
        """One Job."""
        return await self._find(_job(namespace, name))

    async def create_job(self, manifest: Document) -> Document:
        """Creates a Job in its namespace."""
        path = _path("batch/v1", "jobs", manifest["metadata"]["namespace"])
        return await self._connection.request("POST", path, body=manifest, params={"fieldManager": names.FIELD_MANAGER})

    async def patch_job(self, namespace: str, name: str, *, suspended: bool, parallelism: int) -> None:
        """Merge patch of the two fields; the rest of the Job may have been changed by others."""
        body = {"spec": {"suspend": suspended, "parallelism": parallelism}}
        await self._patch(_job(namespace, name), body)

    async def delete_job(self, namespace: str, name: str, uid: str) -> None:
        """Deletes a Job; without the policy its pods would be orphaned."""
        await self._delete(_job(namespace, name), uid)

    async def list_pods(self, namespace: str, job_uid: str) -> list[Document]:
        """The pods that the Job controller made for this Job and no other."""
        selector = {"labelSelector": f"batch.kubernetes.io/controller-uid={job_uid}"}
        return await self._list(_path("v1", "pods", namespace), selector)

    async def list_events(self, namespace: str, kind: str, name: str) -> list[Document]:
        """Events about one object."""
        selector = {"fieldSelector": f"involvedObject.kind={kind},involvedObject.name={name}"}
        return await self._list(_path("v1", "events", namespace), selector)

    async def get_claim(self, namespace: str, name: str) -> Document | None:
        """One claim."""
        return await self._find(f"{_path('v1', 'persistentvolumeclaims', namespace)}/{name}")

    async def get_event(self, namespace: str, name: str) -> Document | None:
        """One event."""
        return await self._find(f"{_path('v1', 'events', namespace)}/{name}")

    async def create_event(self, manifest: Document) -> None:
        """Creates an event."""
        path = _path("v1", "events", manifest["metadata"]["namespace"])
        await self._connection.request("POST", path, body=manifest)

    async def count_event(self, namespace: str, name: str, patch: Document) -> None:
        """Patches an event."""
        await self._patch(f"{_path('v1', 'events', namespace)}/{name}", patch)

    async def set_workload_active(self, namespace: str, job_uid: str, *, active: bool) -> None:
        """Patches spec.active of the workload that Kueue made for the Job, if it differs.

        Without `kueue_enabled` we have no right to its workloads, and a queued job runs as its queue says.
        """
        if not self._kueue_enabled:
            return
        path = _path(KUEUE_API, "workloads", namespace)
        for workload in await self._list(path, {"labelSelector": f"{LABEL_WORKLOAD_JOB_UID}={job_uid}"}):
            if workload["spec"].get("active", True) != active:
                await self._patch(f"{path}/{workload['metadata']['name']}", {"spec": {"active": active}})

    async def _find(self, path: str) -> Document | None:
        try:
            return await self._connection.request("GET", path)
        except NotFound:
            return None

    async def _list(self, path: str, params: dict[str, str]) -> list[Document]:
        return [item async for page in self._pages(path, params) for item in page]

    async def _pages(self, path: str, params: dict[str, str], accept: str = JSON) -> AsyncIterator[list[Document]]:
        params = params | {"limit": str(PAGE_SIZE)}
        while True:
            page = await self._connection.request("GET", path, params=params, accept=accept)
            yield page["items"] or []  # null in an empty list of metadata
            token = page["metadata"].get("continue")
            if not token:
                return
            params = params | {"continue": token}

    async def _patch(self, path: str, body: Document) -> None:
        params = {"fieldManager": names.FIELD_MANAGER}
        await self._connection.request("PATCH", path, body=body, content_type=MERGE_PATCH, params=params)

    async def _delete(self, path: str, uid: str) -> None:
        """Deletes the object of this uid in the background; one that is gone is as good as deleted."""
        body = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
        try:
            await self._connection.request("DELETE", path, body=body)
        except NotFound:
            return


def _path(api_version: str, plural: str, namespace: str | None) -> str:
    root = "/api" if api_version == "v1" else "/apis"
    return "/".join([root, api_version, *_namespace(namespace), plural])


def _namespace(namespace: str | None) -> Iterable[str]:
    return () if namespace is None else ("namespaces", namespace)


def _resource(namespace: str, name: str) -> str:
    return f"{_path(names.API_VERSION, names.PLURAL, namespace)}/{name}"


def _job(namespace: str, name: str) -> str:
    return f"{_path('batch/v1', 'jobs', namespace)}/{name}"
