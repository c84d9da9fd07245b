"""A pytest plugin: the rights that the operator used in the whole suite are those that the chart grants it.

`make test-apiserver` loads it, because only a whole run can tell that a right is not needed. Each worker of
pytest-xdist has a control plane of its own; what its audit log tells is sent to the session's main process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from drillcore_testcluster.audit import Call, Right, rights_used

PLUGIN = "drillcore_suite_rights"
_OUTPUT = "drillcore_rights"


@dataclass
class Comparison:
    """One mode of the operator, over all control planes."""

    used: set[Right] = field(default_factory=set)
    granted: set[Right] = field(default_factory=set)
    forbidden: set[Right] = field(default_factory=set)
    """Asked for and refused by RBAC, for example in a namespace that is not served."""

    def add(self, used: Any, granted: Any, forbidden: Any) -> None:
        """Takes what one control plane saw."""
        for rights, more in ((self.used, used), (self.granted, granted), (self.forbidden, forbidden)):
            rights.update(map(tuple, more))

    def differences(self) -> list[str]:
        """One line for each right that does not fit."""
        told = {
            "was refused": self.forbidden,
            "is used and not granted": self.used - self.granted,
            "is granted and not used": self.granted - self.used,
        }
        return [
            f"{verb} {resource} ({group or 'core'}) {what}"
            for what in told
            for group, resource, verb in sorted(told[what])
        ]


class SuiteRights:
    """Collects on workers, compares in the main process."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._modes: dict[str, Comparison] = {}

    def add(self, mode: str, calls: list[Call], granted: set[Right]) -> None:
        """What the audit log of one control plane tells of a mode."""
        forbidden = {call.right for call in calls if call.is_forbidden}
        self._modes.setdefault(mode, Comparison()).add(rights_used(calls), granted, forbidden)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """On a worker, hands over; in the main process, any difference fails the session."""
        output = getattr(self._config, "workeroutput", None)
        if output is not None:
            output[_OUTPUT] = {
                mode: [list(map(list, rights)) for rights in (seen.used, seen.granted, seen.forbidden)]
                for mode, seen in self._modes.items()
            }
        elif any(seen.differences() for seen in self._modes.values()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Takes what a worker handed over."""
        for mode, rights in getattr(node, "workeroutput", {}).get(_OUTPUT, {}).items():
            self._modes.setdefault(mode, Comparison()).add(*rights)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Says how it came out."""
        for mode, seen in sorted(self._modes.items()):
            differences = seen.differences()
            verdict = "differ" if differences else f"are the {len(seen.used)} that were used"
            terminalreporter.write_line(f"rights of the operator, {mode}: those of the chart {verdict}")
            for difference in differences:
                terminalreporter.write_line(f"  {difference}", red=True)


def pytest_configure(config: pytest.Config) -> None:
    """Makes the collector known to fixtures."""
    config.pluginmanager.register(SuiteRights(config), PLUGIN)
