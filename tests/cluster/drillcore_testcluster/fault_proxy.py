"""An HTTP proxy between one client and the API server that makes calls fail on demand.

The client talks plain HTTP to the proxy, which logs in upstream with the client's own certificate, so that
the audit log shows the client. Faults are decided call by call; watches can be cut while they stream.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx

from drillcore_testcluster.kube_api import client_of_kubeconfig
from drillcore_testcluster.pki import write_kubeconfig
from drillcore_testcluster.ports import LOOPBACK

_HOP_HEADERS = {"connection", "transfer-encoding", "content-length", "content-encoding", "host", "accept-encoding"}
_UPSTREAM_TIMEOUT_S = 330.0


@dataclass(frozen=True)
class Call:
    """One request as the proxy sees it."""

    method: str
    path: str
    """With its query."""
    user_agent: str
    time_s: float = field(default_factory=time.monotonic)

    @property
    def is_watch(self) -> bool:
        """Whether its answer is an endless stream."""
        return "watch=true" in self.path

    def is_watch_of(self, plurals: Sequence[str]) -> bool:
        """Whether it watches one of these kinds."""
        return self.is_watch and self.path.split("?")[0].endswith(tuple(plurals))

    @property
    def is_reconciling(self) -> bool:
        """Whether it comes from the operator's own client, not from kopf's watches."""
        return self.user_agent.startswith("drillcore-operator")


@dataclass(frozen=True)
class Answer:
    """An answer in place of the API server's; the call does not reach it."""

    code: int
    retry_after_s: int | None = None


@dataclass(frozen=True)
class Interrupt:
    """Something that happens before the call reaches the API server, or before its answer reaches the client.

    The client gets no answer.
    """

    action: Callable[[], None]
    after_forwarding: bool


Fault = Answer | Interrupt


def no_fault(_: Call) -> Fault | None:
    """Lets every call through."""
    return None


class FaultProxy:
    """The proxy; `decide` may be replaced at any time."""

    def __init__(self, kubeconfig: Path) -> None:
        self.decide: Callable[[Call], Fault | None] = no_fault
        self.calls: list[Call] = []
        """Every call so far."""
        self._upstream = client_of_kubeconfig(kubeconfig, _UPSTREAM_TIMEOUT_S)
        self._watches: set[socket.socket] = set()
        self._server = _Server((LOOPBACK, 0), self._handler())
        self.url = f"http://{LOOPBACK}:{self._server.server_port}"

    def write_kubeconfig(self, path: Path) -> Path:
        """A kubeconfig that leads here."""
        return write_kubeconfig(path, {"server": self.url}, {})

    @contextmanager
    def running(self) -> Iterator[FaultProxy]:
        """Serves in a thread."""
        thread = threading.Thread(target=self._server.serve_forever, name="fault proxy", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self.cut_watches()
            self._server.server_close()
            self._upstream.close()
            thread.join()

    @property
    def num_watches(self) -> int:
        """Watches that stream now and that the client still listens to."""
        return sum(1 for each in list(self._watches) if _is_open(each))

    def cut_watches(self) -> int:
        """Closes every connection that streams a watch, without a word; gives their number."""
        cut = list(self._watches)
        for each in cut:
            self._watches.discard(each)
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        return len(cut)

    def num_calls(self, is_counted: Callable[[Call], bool], since_s: float = 0.0) -> int:
        """Calls of a kind since a moment of the monotonic clock."""
        return sum(1 for call in list(self.calls) if call.time_s >= since_s and is_counted(call))

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                """The operator's log is enough."""

            def _serve(self) -> None:
                try:
                    proxy._serve(self)
                except (OSError, httpx.TransportError):
                    # Without an answer the client must not wait for one on a connection that stays open.
                    self.close_connection = True

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

        return Handler

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        call = Call(handler.command, handler.path, handler.headers.get("User-Agent", ""))
        self.calls.append(call)
        fault = self.decide(call)
        if isinstance(fault, Answer):
            _answer(handler, fault)
            return
        if isinstance(fault, Interrupt) and not fault.after_forwarding:
            _hang_up(handler, fault)
            return
        headers = {k: v for k, v in handler.headers.items() if k.lower() not in _HOP_HEADERS}
        with self._upstream.stream(call.method, call.path, content=body or None, headers=headers) as response:
            if isinstance(fault, Interrupt):
                response.read()
                _hang_up(handler, fault)
            elif call.is_watch and response.is_success:
                self._stream(handler, response)
            else:
                _forward(handler, response)

    def _stream(self, handler: BaseHTTPRequestHandler, response: httpx.Response) -> None:
        handler.send_response(response.status_code)
        handler.send_header("Content-Type", response.headers["Content-Type"])
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.close_connection = True
        self._watches.add(handler.connection)
        try:
            for piece in response.iter_bytes():
                handler.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            handler.wfile.write(b"0\r\n\r\n")
        finally:
            self._watches.discard(handler.connection)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that was killed leaves its connections as they are."""


def _forward(handler: BaseHTTPRequestHandler, response: httpx.Response) -> None:
    content = response.read()
    handler.send_response(response.status_code)
    for name, value in response.headers.items():
        if name.lower() not in _HOP_HEADERS:
            handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


def _answer(handler: BaseHTTPRequestHandler, answer: Answer) -> None:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": answer.code}
    content = json.dumps(status | {"message": f"fault {answer.code}", "reason": "Fault"}).encode()
    handler.send_response(answer.code)
    if answer.retry_after_s is not None:
        handler.send_header("Retry-After", str(answer.retry_after_s))
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


def _is_open(connection: socket.socket) -> bool:
    """Whether the peer has not closed it: a stream without events is never written to, and would not tell."""
    try:
        return bool(connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return True
    except OSError:
        return False


def _hang_up(handler: BaseHTTPRequestHandler, fault: Interrupt) -> None:
    fault.action()
    handler.close_connection = True
    with suppress(OSError):
        handler.connection.shutdown(socket.SHUT_RDWR)
