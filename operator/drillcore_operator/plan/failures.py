"""Why shards ended: exit codes, termination messages and OOM kills of pods."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from drillcore_operator.observed import Pod
from drillcore_operator.plan.hints import HINTS
from drillcore_spec import names
from drillcore_spec.job import ExtractionJobSpec
from drillcore_spec.messages import TerminationMessage
from drillcore_spec.reasons import EXIT_RULES, Reason

_EVICTED = "Evicted"
_REASON_OF_CODE = {rule.code: rule.reasons[0] for rule in EXIT_RULES}


@dataclass(frozen=True)
class ShardFailure:
    """How one attempt of a shard ended badly."""

    index: int
    pod: str
    reason: Reason
    message: str
    """With the pod, what was seen there, and what to do."""


def failures(pods: Iterable[Pod], spec: ExtractionJobSpec) -> list[ShardFailure]:
    """The failure of each pod that failed by itself, oldest first; disrupted pods did not fail."""
    failed = [p for p in pods if p.phase == "Failed" and p.disruption is None]
    return [_failure(pod, spec) for pod in sorted(failed, key=lambda p: p.created)]


def latest_by_shard(found: Iterable[ShardFailure]) -> dict[int, ShardFailure]:
    """The last failure of each shard."""
    return {failure.index: failure for failure in found}


def reason_of_code(code: int) -> Reason:
    """The first reason of the exit-code table's row; Internal for a code that is not in it."""
    return _REASON_OF_CODE.get(code, Reason.INTERNAL)


def with_hint(reason: Reason, message: str) -> str:
    """The message, and what to do."""
    hint = HINTS.get(reason)
    return f"{message}; {hint}" if hint else message


def _failure(pod: Pod, spec: ExtractionJobSpec) -> ShardFailure:
    reason, what = _out_of_memory(pod, spec) or _eviction(pod) or _server_end(pod)
    where = f"shard {pod.index}, pod {pod.name}"
    return ShardFailure(pod.index, pod.name, reason, with_hint(reason, f"{where}: {what}"))


def _out_of_memory(pod: Pod, spec: ExtractionJobSpec) -> tuple[Reason, str] | None:
    """Kubelet's OOMKilled counts more than the exit code, which can be 0 when a child was killed."""
    for container in pod.containers:
        if not container.was_out_of_memory:
            continue
        if container.name == names.CONTAINER_SERVER:
            limit = f"its limit {spec.server.resources.memory}, of which the ring may take {spec.ring.size}"
        elif container.name == names.CONTAINER_SIDECAR:
            limit = f"its limit {spec.sidecar.resources.memory}"
        else:
            limit = "its limit"
        return Reason.OUT_OF_MEMORY, f"container {container.name} was killed for memory over {limit}"
    return None


def _eviction(pod: Pod) -> tuple[Reason, str] | None:
    """Kubelet's eviction of a pod that wrote more than its volumes may hold.

    That is no disruption, as it would happen again on any node: kubelet sets no condition DisruptionTarget. The server
    knows only that it was asked to end, or kubelet knows nothing of it any more.
    Source: kubernetes/pkg/kubelet/eviction/eviction_manager.go, localStorageEviction
    """
    if pod.status_reason != _EVICTED:
        return None
    return Reason.TERMINATED, f"kubelet evicted it: {pod.status_message}"


def _server_end(pod: Pod) -> tuple[Reason, str]:
    end = pod.server_end
    if end is None:
        return Reason.INTERNAL, pod.status_message or "the pod failed before its server ran"
    told = TerminationMessage.from_text(end.message)
    if told is not None and told.reason is not Reason.COMMITTED:
        return told.reason, told.message or f"the server ended with code {end.exit_code}"
    tail = f": {end.message.strip()}" if end.message.strip() else ""
    return reason_of_code(end.exit_code), f"the server ended with code {end.exit_code}{tail}"
