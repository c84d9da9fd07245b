"""States of containers as kubelet reports them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Self

from drillcore_operator.observed.fields import Manifest, parse_time

OOM_KILLED = "OOMKilled"


@dataclass(frozen=True)
class Termination:
    """How a container ended."""

    exit_code: int
    reason: str = ""
    """kubelet's word: Completed, Error, OOMKilled. With OOMKilled the exit code may be 0."""
    message: str = ""
    """The termination message, or the tail of the log."""
    finished_at: datetime | None = None

    @classmethod
    def from_api(cls, terminated: Manifest) -> Self:
        """Reads `state.terminated`."""
        return cls(
            exit_code=terminated["exitCode"],
            reason=terminated.get("reason") or "",
            message=terminated.get("message") or "",
            finished_at=parse_time(terminated.get("finishedAt")),
        )

    @property
    def is_out_of_memory(self) -> bool:
        """Whether the kernel killed it, or a child of it, for memory."""
        return self.reason == OOM_KILLED


@dataclass(frozen=True)
class ContainerStatus:
    """One container, or native sidecar, of a pod."""

    name: str
    image: str = ""
    is_running: bool = False
    waiting_reason: str = ""
    """Why it waits; empty when it does not."""
    waiting_message: str = ""
    terminated: Termination | None = None
    last_terminated: Termination | None = None
    """How its previous run ended, when it was restarted."""

    @classmethod
    def from_api(cls, status: Manifest) -> Self:
        """Reads an entry of `containerStatuses` or `initContainerStatuses`."""
        state = status.get("state") or {}
        waiting = state.get("waiting") or {}
        return cls(
            name=status["name"],
            image=status.get("image") or "",
            is_running="running" in state,
            waiting_reason=waiting.get("reason") or "",
            waiting_message=waiting.get("message") or "",
            terminated=_termination(state),
            last_terminated=_termination(status.get("lastState") or {}),
        )

    @property
    def was_out_of_memory(self) -> bool:
        """Whether its present or previous run ended for memory."""
        return any(t is not None and t.is_out_of_memory for t in (self.terminated, self.last_terminated))


def _termination(state: Manifest) -> Termination | None:
    return Termination.from_api(state["terminated"]) if state.get("terminated") else None
