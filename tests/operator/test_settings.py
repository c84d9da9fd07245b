"""Settings: read once, refused with the variable's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from drillcore_operator.errors import SettingsError
from drillcore_operator.settings import PREFIX, Settings

REQUIRED = {
    f"{PREFIX}SERVER_IMAGE": "server:1",
    f"{PREFIX}SIDECAR_IMAGE": "sidecar:1",
    f"{PREFIX}ADVERTISE_URL": "http://api.svc:8080",
}


def test_required_settings_are_enough() -> None:
    settings = Settings.from_environment(REQUIRED | {"PATH": "/bin"})
    assert settings.namespaces == ()
    assert settings.status_interval_s == 15
    assert settings.pod_defaults().api_ca is None


def test_namespaces_are_words_and_the_authority_is_read(tmp_path: Path) -> None:
    authority = tmp_path / "ca.crt"
    authority.write_text("PEM")
    more = {f"{PREFIX}NAMESPACES": "a b", f"{PREFIX}API_CA_FILE": str(authority)}
    settings = Settings.from_environment(REQUIRED | more)
    assert settings.namespaces == ("a", "b")
    assert settings.pod_defaults().api_ca == "PEM"


@pytest.mark.parametrize(
    ("name", "value"),
    [("NUM_WORKERS", "many"), ("ADVERTISE_URL", "http://api/"), ("SIDECAR_IMAGE", ""), ("NO_SUCH_THING", "1")],
)
def test_wrong_or_unknown_setting_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"{PREFIX}{name}"):
        Settings.from_environment(REQUIRED | {f"{PREFIX}{name}": value})


def test_missing_setting_is_named() -> None:
    with pytest.raises(SettingsError, match=f"{PREFIX}SERVER_IMAGE"):
        Settings.from_environment({})
