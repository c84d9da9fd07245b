import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest

from drillcore_server.data import dataset_identity, open_dataset
from drillcore_server.data.hub import choose_files
from drillcore_server.errors import ShardError
from drillcore_server.volumes import Volumes
from drillcore_spec.dataset import DatasetSource
from drillcore_spec.reasons import Reason

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ROWS = b'{"text": "a"}\n{"text": "b"}\n'


class FakeHub:
    """Serves one dataset repository as huggingface_hub 1.33 asks for it (`hf_api.py`, `file_download.py`)."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.refusals: dict[str, tuple[int, str]] = {}
        self.paths: list[str] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                hub.answer(self)

            do_HEAD = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = unquote(request.path.partition("?")[0])
        self.paths.append(path)
        if not path.startswith(("/api/datasets/org/data", "/datasets/org/data/resolve/")):
            return self._send(request, 404, b"{}", {"X-Error-Code": "RepoNotFound"})
        for part, (status, code) in self.refusals.items():
            if part in path:
                return self._send(request, status, b"{}", {"X-Error-Code": code})
        if path.startswith("/api/"):
            revision = path.partition("/revision/")[2]
            if revision not in ("", "main", "v1", COMMIT):
                return self._send(request, 404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            listing = {"id": "org/data", "sha": COMMIT, "siblings": [{"rfilename": name} for name in self.files]}
            return self._send(request, 200, json.dumps(listing).encode(), {"Content-Type": "application/json"})
        content = self.files[path.partition(f"/resolve/{COMMIT}/")[2]]
        etag = hashlib.sha1(content).hexdigest()
        return self._send(request, 200, content, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT})

    def _send(self, request: BaseHTTPRequestHandler, status: int, content: bytes, headers: dict[str, str]) -> None:
        request.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(content))}).items():
            request.send_header(name, value)
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(content)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    hub = FakeHub()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{hub.server.server_port}")
    yield hub
    hub.server.shutdown()
    hub.thread.join()
    hub.server.server_close()


def _source(uri: str = "hf://org/data", **fields: str) -> DatasetSource:
    return DatasetSource.model_validate({"uri": uri, "columns": {"text": "text"}} | fields)


def test_the_files_of_one_split_and_one_commit_are_downloaded_and_recorded(hub: FakeHub, tmp_path: Path) -> None:
    hub.files = {"README.md": b"", "data/train-00000-of-00001.jsonl": ROWS, "data/test-00000-of-00001.jsonl": ROWS}
    source = _source("hf://org/data@v1", split="train")
    dataset = open_dataset(source, Volumes(tmp_path), cache_dir=tmp_path)
    assert [row.record["text"] for row in dataset.read(range(2))] == ["a", "b"]  # type: ignore[union-attr]
    identity = dataset_identity(dataset, source)
    assert (identity["revision"], identity["split"]) == (COMMIT, "train")
    assert identity["files"] == [
        {"path": "data/train-00000-of-00001.jsonl", "bytes": len(ROWS), "sha256": hashlib.sha256(ROWS).hexdigest()}
    ]
    assert not [path for path in hub.paths if "test-00000" in path or "README" in path]


@pytest.mark.parametrize(
    ("uri", "refusals", "reason", "said"),
    [
        ("hf://org/other", {}, Reason.DATASET_NOT_FOUND, "the hub has no hf://org/other"),
        ("hf://org/data@v9", {}, Reason.DATASET_NOT_FOUND, "no revision 'v9'"),
        ("hf://data", {}, Reason.BAD_SPEC, "must be hf://ORG/NAME"),
        ("hf://org/data", {"/api/": (403, "GatedRepo")}, Reason.MODEL_UNAVAILABLE, "is gated"),
        ("hf://org/data", {"/api/": (500, "")}, Reason.MODEL_UNAVAILABLE, "did not give hf://org/data"),
        ("hf://org/data", {"/resolve/": (403, "")}, Reason.MODEL_UNAVAILABLE, "did not give hf://org/data"),
    ],
)
def test_what_the_hub_refuses_is_explained(
    hub: FakeHub, tmp_path: Path, uri: str, refusals: dict[str, tuple[int, str]], reason: Reason, said: str
) -> None:
    hub.files, hub.refusals = {"train.jsonl": ROWS}, refusals
    with pytest.raises(ShardError) as caught:
        open_dataset(_source(uri), Volumes(tmp_path), cache_dir=tmp_path)
    assert caught.value.reason is reason
    assert said in caught.value.message


def test_a_hub_that_is_not_there_can_be_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ShardError, match="Check HF_ENDPOINT") as caught:
        open_dataset(_source(), Volumes(tmp_path), cache_dir=tmp_path)
    assert caught.value.reason is Reason.MODEL_UNAVAILABLE


NAMES = ["README.md", "dataset_infos.json", "main/train-00000-of-00001.parquet", "main/test-00000-of-00001.parquet"]


@pytest.mark.parametrize(
    ("path", "split", "expected"),
    [
        ("", "train", ["main/train-00000-of-00001.parquet"]),
        ("main", "test", ["main/test-00000-of-00001.parquet"]),
        ("main/", "test", ["main/test-00000-of-00001.parquet"]),
        ("main/train-00000-of-00001.parquet", None, ["main/train-00000-of-00001.parquet"]),
        ("main/*.parquet", None, ["main/test-00000-of-00001.parquet", "main/train-00000-of-00001.parquet"]),
    ],
)
def test_paths_name_folders_files_and_patterns(path: str, split: str | None, expected: list[str]) -> None:
    assert choose_files(NAMES, path, split, "hf://org/data") == expected


def test_several_splits_or_folders_are_not_joined_silently() -> None:
    with pytest.raises(ShardError, match="test, train; none is chosen"):
        choose_files(NAMES, "", None, "hf://org/data")
    others = [*NAMES, "other/train-00000-of-00001.parquet"]
    with pytest.raises(ShardError, match="several folders: main, other"):
        choose_files(others, "", "train", "hf://org/data")
    with pytest.raises(ShardError, match=r"names no \.jsonl.*README\.md") as caught:
        choose_files(NAMES, "mian", "train", "hf://org/data")
    assert caught.value.reason is Reason.DATASET_NOT_FOUND
