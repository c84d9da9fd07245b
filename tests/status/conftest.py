"""The API on a real port, over jobs that a test sets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from drillcore_spec.messages import ProgressReport
from drillcore_spec.status import ExtractionJobStatus
from drillcore_status import OpenAuthorizer, PodIdentity, PodReports, Services, create_app
from drillcore_status.errors import ApiError, Forbidden, NotFound, Unauthorized
from drillcore_status.serving import make_server
from drillcore_status.views import Job, JobEvent, JobMetadata, Shard, ThroughputSample

SPEC = {
    "model": {"uri": "pvc://models/m"},
    "dataset": {"uri": "pvc://datasets/d.jsonl", "columns": {"text": "text"}},
    "extraction": {"layers": [1]},
    "output": {"claimName": "out"},
}
TIMEOUT_S = 60.0
"""Longer than a busy machine needs."""
READER_TOKEN = "reader-of-team-a"
POD_TOKEN = "pod-of-shard-0"


class JobsInMemory:
    """A JobSource and a ProgressSink whose content the test changes."""

    def __init__(self) -> None:
        self.jobs: dict[tuple[str, str], Job] = {}
        self.shards: dict[tuple[str, str], list[Shard]] = {}
        self.events: dict[tuple[str, str], list[JobEvent]] = {}
        self.samples: dict[tuple[str, str], list[ThroughputSample]] = {}
        self.reports: list[tuple[PodIdentity, ProgressReport]] = []
        self.problem: Exception | None = None
        """Raised instead of any answer."""

    def put(self, name: str = "a-job", *, namespace: str = "team-a", status: Any = None, spec: Any = None) -> Job:
        """Adds a job, or changes it."""
        job = Job(
            metadata=JobMetadata(name=name, namespace=namespace, uid=f"uid-{name}"),
            spec=spec or SPEC,
            status=ExtractionJobStatus.model_validate(status or {}),
        )
        self.jobs[namespace, name] = job
        return job

    async def list_jobs(self, namespace: str) -> list[Job]:
        self._fail()
        return [job for (place, _), job in sorted(self.jobs.items()) if place == namespace]

    async def get_job(self, namespace: str, name: str) -> Job:
        self._fail()
        if (namespace, name) not in self.jobs:
            raise NotFound(f'extractionjobs "{name}" not found')
        return self.jobs[namespace, name]

    async def list_shards(self, namespace: str, name: str) -> list[Shard]:
        await self.get_job(namespace, name)
        return self.shards.get((namespace, name), [])

    async def list_events(self, namespace: str, name: str) -> list[JobEvent]:
        await self.get_job(namespace, name)
        return self.events.get((namespace, name), [])

    async def throughput(self, namespace: str, name: str) -> list[ThroughputSample]:
        await self.get_job(namespace, name)
        return self.samples.get((namespace, name), [])

    async def take(self, namespace: str, name: str, pod: PodIdentity, report: ProgressReport) -> None:
        self.reports.append((pod, report))

    def _fail(self) -> None:
        if self.problem is not None:
            raise self.problem


class TokensInMemory:
    """Judges tokens by what the test allows."""

    def __init__(self) -> None:
        self.readers: dict[str, set[str]] = {READER_TOKEN: {"team-a"}}
        self.pods = {POD_TOKEN: PodIdentity("team-a", "a-job-00000000-0-abcde")}
        self.problem: ApiError | None = None

    async def check_reader(self, token: str | None, namespace: str) -> None:
        if self.problem is not None:
            raise self.problem
        if token not in self.readers:
            raise Unauthorized("log in with a token of the cluster")
        if namespace not in self.readers[token]:
            raise Forbidden(f"you may not get extractionjobs in {namespace}")

    async def identify_pod(self, token: str | None, namespace: str, name: str) -> PodIdentity:
        if token not in self.pods:
            raise Unauthorized("no pod's token for this job")
        return self.pods[token]


@pytest.fixture
def jobs() -> JobsInMemory:
    return JobsInMemory()


@pytest.fixture
def tokens() -> TokensInMemory:
    return TokensInMemory()


@pytest.fixture
def services(jobs: JobsInMemory, tokens: TokensInMemory) -> Services:
    """As in a cluster, but for a short interval of streams."""
    reports = PodReports(jobs, tokens)
    return Services(source=jobs, authorizer=tokens, reports=reports, stream_interval_s=0.02)


@pytest.fixture
def open_services(jobs: JobsInMemory) -> Services:
    """As on a laptop: nobody logs in."""
    return Services(source=jobs, authorizer=OpenAuthorizer(), stream_interval_s=0.02)


class _Switch:
    """One application at a time on one port, because a server takes longer to end than most tests."""

    def __init__(self) -> None:
        self.app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self.app is not None
        await self.app(scope, receive, send)


@pytest.fixture(scope="session")
def switch_and_url() -> Iterator[tuple[_Switch, str]]:
    switch = _Switch()
    with _running(switch) as url:
        yield switch, url


@pytest.fixture
def serve(switch_and_url: tuple[_Switch, str]) -> Callable[[Services], str]:
    """`serve(services)`: the base URL at which they are served from now on."""
    switch, url = switch_and_url

    def start(services: Services) -> str:
        switch.app = create_app(services)
        return url

    return start


@pytest.fixture
def client(serve: Callable[[Services], str], services: Services) -> Iterator[httpx.Client]:
    """Somebody who may read team-a."""
    headers = {"Authorization": f"Bearer {READER_TOKEN}"}
    with httpx.Client(base_url=serve(services), headers=headers, timeout=TIMEOUT_S, trust_env=False) as reader:
        yield reader


@pytest.fixture
def anybody(serve: Callable[[Services], str], services: Services) -> Iterator[httpx.Client]:
    """Somebody without a token."""
    with httpx.Client(base_url=serve(services), timeout=TIMEOUT_S, trust_env=False) as stranger:
        yield stranger


@contextmanager
def _running(app: ASGIApp) -> Iterator[str]:
    server = make_server(app, "127.0.0.1", 0)
    listening = threading.Event()

    async def run() -> None:
        task = asyncio.create_task(server.serve())
        while not server.started and not task.done():
            await asyncio.sleep(0.005)
        listening.set()
        await task

    thread = threading.Thread(target=asyncio.run, args=(run(),), daemon=True)
    thread.start()
    assert listening.wait(10)
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive(), "the server did not end"
