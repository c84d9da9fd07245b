"""Posts the shard's counts to the job-status API. The work never waits for it, and never fails by it."""

from __future__ import annotations

import logging
import random
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from drillcore_spec.messages import ProgressReport
from drillcore_spec.names import ENV_PROGRESS_CA, ENV_PROGRESS_URL, TOKEN_DIR, TOKEN_FILE

logger = logging.getLogger(__name__)

INTERVAL_S: Final = 30.0
JITTER: Final = 0.2
"""Each wait is up to this fraction shorter or longer, so that the pods of a job do not post together."""
_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True)
class ProgressTarget:
    """Where progress goes, and how this pod proves who it is."""

    url: str
    ca_pem: str | None
    """Certificate authority, PEM; `None`: the system's."""
    token_path: Path
    """Read anew for each post: kubelet replaces the token every few minutes."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> ProgressTarget:
        """The target that the pod's environment names; raises KeyError where it names none."""
        token_path = Path(TOKEN_DIR) / TOKEN_FILE
        return cls(environment[ENV_PROGRESS_URL], environment.get(ENV_PROGRESS_CA), token_path)


class ProgressPoster:
    """A thread that posts every half minute and when told to."""

    def __init__(
        self,
        target: ProgressTarget,
        make_report: Callable[[int], ProgressReport],
        randomness: random.Random,
        interval_s: float = INTERVAL_S,
    ) -> None:
        """Starts posting.

        Args:
            target: where to.
            make_report: called in the thread with a number that grows with each post.
            randomness: for the jitter.
            interval_s: between two posts, before jitter.
        """
        self._target = target
        self._make_report = make_report
        self._randomness = randomness
        self._interval_s = interval_s
        self._due = threading.Event()
        self._closed = False
        self.num_failures = 0
        """Posts that did not arrive, since the start."""
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._thread.start()

    def post_now(self) -> None:
        """Posts without waiting for the interval."""
        self._due.set()

    def close(self, timeout_s: float = 2 * _TIMEOUT_S) -> None:
        """Posts once more and ends the thread, or leaves it when that takes longer than `timeout_s`."""
        self._closed = True
        self._due.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        seq = 0
        while True:
            last = self._closed
            self._due.clear()
            self._post(self._make_report(seq))
            seq += 1
            if last:
                return
            if not self._closed:
                self._due.wait(self._interval_s * self._randomness.uniform(1 - JITTER, 1 + JITTER))

    def _post(self, report: ProgressReport) -> None:
        """Posts one report. The next one says all that this one says, so nothing is repeated."""
        try:
            headers = {"Authorization": f"Bearer {self._target.token_path.read_text().strip()}"}
            response = httpx.post(
                self._target.url,
                content=report.to_json(),
                headers={"Content-Type": "application/json", **headers},
                timeout=_TIMEOUT_S,
                verify=self._verify(),
            )
            response.raise_for_status()
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            self.num_failures += 1
            logger.warning("progress was not posted (failure %d, the work goes on): %s", self.num_failures, error)

    def _verify(self) -> ssl.SSLContext | bool:
        return True if self._target.ca_pem is None else ssl.create_default_context(cadata=self._target.ca_pem)
