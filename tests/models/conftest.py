"""A hidden cache that keeps every state of one step, and a model hub on this machine."""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

import pytest
import torch

from drillcore_kernels import Capture


class RecordingSink:
    """Captures the ids asked for, and the final norm, of T tokens into poisoned caches."""

    def __init__(self, ids, num_tokens, hidden, *, final_norm=False, num_blocks=None, block_size=64):
        columns = len(ids) + final_norm
        num_blocks = num_blocks or -(-num_tokens // block_size) + 1
        self.cache = torch.full((num_blocks, block_size, columns, hidden), torch.nan)
        self.stats = torch.full((num_blocks, block_size, columns, 2), torch.nan)
        self.slots = torch.randperm((num_blocks - 1) * block_size)[:num_tokens] + block_size
        self.ids = list(ids)
        self.last_layer = max(ids)
        self.has_final_norm = final_norm
        self.asked = []

    def residual(self, i):
        self.asked.append(i)
        return self._capture(self.ids.index(i)) if i in self.ids else None

    def final_norm(self):
        return self._capture(len(self.ids)) if self.has_final_norm else None

    def _capture(self, column):
        return Capture(self.cache, self.stats, column, self.slots)

    def states(self, i):
        """r_i of every token, [T, D]."""
        return self._rows(self.cache, self.ids.index(i))

    def final_states(self):
        return self._rows(self.cache, len(self.ids))

    def stats_of(self, i):
        return self._rows(self.stats, self.ids.index(i))

    def _rows(self, cache, column):
        return cache.flatten(0, 1)[self.slots, column]


@pytest.fixture
def recording_sink():
    return RecordingSink


class FakeHub:
    """A server that speaks the part of the hub's HTTP API that a download uses, over folders of this machine.

    Source of the routes and headers: huggingface_hub 1.33 `hf_api.py` and `file_download.py`.
    """

    COMMIT = "0123456789abcdef0123456789abcdef01234567"

    def __init__(self):
        self.folders = {}
        self.error_codes = {}
        self.truncated = set()
        self.requests = []
        self.is_open = True
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                hub.answer(self)

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self):
        """Ends the server; connections that a client keeps open are cut at its next request."""
        if self.is_open:
            self.is_open = False
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    @property
    def downloaded(self):
        """Names of the files whose content was sent."""
        return {path.rpartition("/")[2] for method, path, _ in self.requests if method == "GET" and "/resolve/" in path}

    def answer(self, request):
        if not self.is_open:
            request.close_connection = True
            return None
        path = unquote(request.path.partition("?")[0])
        self.requests.append((request.command, path, request.headers.get("Authorization")))
        api, _, rest = path.partition("/api/models/")
        repo, _, rest = (rest if not api else path[1:]).partition("/resolve/" if api else "/revision/")
        if not api and "/tree/" in repo:
            repo, _, rest = repo.partition("/tree/")
            return self._send_json(request, self._tree(repo)) if repo in self.folders else self._refuse(request, repo)
        if repo not in self.folders or repo in self.error_codes:
            return self._refuse(request, repo)
        if not api:
            if rest not in ("", "main", self.COMMIT):
                return self._send(request, 404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            return self._send_json(request, {"id": repo, "sha": self.COMMIT, "siblings": []})
        return self._send_file(request, self.folders[repo], rest.partition("/")[2])

    def _refuse(self, request, repo):
        status, code = self.error_codes.get(repo, (404, "RepoNotFound"))
        self._send(request, status, b"{}", {"X-Error-Code": code} if code else {})

    def _tree(self, repo):
        folder = self.folders[repo]
        return [
            {"type": "file", "path": path.name, "size": path.stat().st_size, "oid": self._etag(path)}
            for path in sorted(folder.iterdir())
        ]

    def _etag(self, path):
        return hashlib.sha1(path.read_bytes()).hexdigest()

    def _send_file(self, request, folder, name):
        path = folder / name
        if not path.exists():
            return self._send(request, 404, b"", {"X-Error-Code": "EntryNotFound"})
        headers = {"ETag": f'"{self._etag(path)}"', "X-Repo-Commit": self.COMMIT, "Accept-Ranges": "bytes"}
        return self._send(request, 200, path.read_bytes(), headers, cut=name in self.truncated)

    def _send_json(self, request, value):
        self._send(request, 200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(self, request, status, content, headers, cut=False):
        request.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(content))}).items():
            request.send_header(name, value)
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(content[: len(content) // 2] if cut else content)
            request.close_connection = request.close_connection or cut


@pytest.fixture
def hub(monkeypatch):
    """An empty model hub that HF_ENDPOINT names; `hub.folders["org/name"] = folder` fills it."""
    server = FakeHub()
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    yield server
    server.close()
