"""Which events of our resource ask for a look."""

from __future__ import annotations

from typing import Any

import kopf
import pytest

from drillcore_operator.handlers import build_settings, by_address, is_own_echo


def event(type_: str | None, observed: int | None, **metadata: Any) -> dict[str, Any]:
    status = {} if observed is None else {"observedGeneration": observed}
    return {"type": type_, "object": {"metadata": {"generation": 2} | metadata, "status": status}}


def test_status_of_the_present_generation_is_our_own_echo() -> None:
    assert is_own_echo(event("MODIFIED", 2))


@pytest.mark.parametrize(
    "news",
    [
        event("MODIFIED", 1),
        event("MODIFIED", None),
        event("MODIFIED", 2, deletionTimestamp="now"),
        event(None, 2),
        event("ADDED", 2),
        event("DELETED", 2),
    ],
)
def test_everything_else_is_news(news: dict[str, Any]) -> None:
    assert not is_own_echo(news)


@pytest.mark.parametrize(
    ("host", "url"), [("10.96.0.1", "https://10.96.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
def test_a_pod_reaches_the_api_server_by_address_because_dns_may_be_broken(host: str, url: str) -> None:
    account = kopf.ConnectionInfo(server="https://kubernetes.default.svc", token="t", ca_path="/ca.crt")
    moved = by_address(account, {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"})
    assert (moved.server, moved.token, moved.ca_path) == (url, "t", "/ca.crt")


def test_kopf_never_kills_the_process_after_its_end() -> None:
    """It would by default, ten minutes after, though the operator has started it anew."""
    assert build_settings().process.ultimate_exiting_timeout is None
