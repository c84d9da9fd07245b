"""kubectl as a user runs it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Kubectl:
    """kubectl with one user's kubeconfig."""

    binary: Path
    kubeconfig: Path

    def run(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Runs kubectl and gives its code and output, whatever they are."""
        argv = [str(self.binary), f"--kubeconfig={self.kubeconfig}", *arguments]
        return subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S)

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        """Runs kubectl, which must succeed, and gives its standard output."""
        result = self.run(*arguments, stdin=stdin)
        assert result.returncode == 0, f"kubectl {' '.join(arguments)}: {result.stderr}"
        return result.stdout
