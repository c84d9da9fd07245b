"""Files over HTTP, and paths that clients choose: below the storage, whatever is linked or renamed meanwhile."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from pathlib import Path

import httpx
import pytest
from safetensors.torch import load

from drillcore_server.api.errors import BadRequest, NotFound
from drillcore_server.api.storage import Storage
from drillcore_server.errors import ShardError

IDS = [5, 9, 200]
TIMEOUT_S = 60
ROUNDS = 60


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder that nothing may be written to."""
    folder = tmp_path / "outside"
    folder.mkdir()
    return folder


@pytest.fixture
def server(serve, outside):
    """Nothing lies outside its storage when the test has ended."""
    server = serve()
    yield server
    assert list(outside.iterdir()) == []


def ask(server, path: str) -> httpx.Response:
    return server.post(prompt=IDS, max_tokens=1, kv_transfer_params={"hidden_states_path": path})


def assert_refused(answer: httpx.Response) -> None:
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == "kv_transfer_params.hidden_states_path"


@pytest.mark.parametrize("path", ["a.safetensors", "deep/er/b.safetensors", "./c", "d//e", "ü 文/f.safetensors"])
def test_a_path_below_the_storage_is_taken(server, assert_file, path):
    told = ask(server, path).json()["kv_transfer_params"]["hidden_states_path"]

    assert Path(told) == server.storage / path
    assert_file(told, IDS)


def test_an_absolute_path_below_the_storage_is_taken(server, assert_file):
    path = server.storage / "x" / "y.safetensors"
    assert ask(server, str(path)).json()["kv_transfer_params"]["hidden_states_path"] == str(path)
    assert_file(path, IDS)


def test_a_file_of_the_same_path_is_replaced_whole(server, assert_file):
    for prompt in ([1, 2], [3, 4, 5]):
        server.post(prompt=prompt, max_tokens=1, kv_transfer_params={"hidden_states_path": "same"})
        assert_file(server.storage / "same", prompt)
    assert len(server.files()) == 1


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        ".",
        "..",
        "../outside/a",
        "a/../../outside/a",
        "a/..",
        "/etc/passwd",
        "/tmp/a",
        "a\0b",
        "a" * 256,
        "a/" * 3000 + "b",
        "ü" * 128,
        "folder/",
        ".hidden",
        "a/.hidden/b",
        "~/a\0",
    ],
    ids=lambda path: repr(path[:20]),
)
def test_any_other_path_is_refused(server, path):
    assert_refused(ask(server, path))
    assert server.files() == []


def test_a_path_that_only_begins_like_the_storage_is_refused(server):
    assert_refused(ask(server, f"{server.storage}-elsewhere/a"))


@pytest.mark.parametrize("target", ["outside", "."])
def test_a_linked_folder_is_refused(server, outside, target):
    (server.storage / "link").symlink_to(outside if target == "outside" else server.storage, target_is_directory=True)
    assert_refused(ask(server, "link/a"))
    assert_refused(ask(server, "link/deeper/a"))


def test_a_link_in_the_place_of_the_file_is_replaced_not_followed(server, outside, assert_file):
    (server.storage / "a").symlink_to(outside / "target")
    assert ask(server, "a").status_code == 200
    assert not (server.storage / "a").is_symlink()
    assert_file(server.storage / "a", IDS)


def test_a_folder_or_a_file_in_the_way_is_refused_and_nothing_is_left(server):
    (server.storage / "folder").mkdir()
    (server.storage / "file").write_text("x")
    assert_refused(ask(server, "folder"))
    assert_refused(ask(server, "file/a"))
    assert [path.name for path in server.files()] == ["file"]


def test_folders_that_become_links_during_the_request_lead_nowhere_else(server, outside):
    """A folder of the path is swapped for a link, again and again, while requests are written through it."""
    folder, asides, done = server.storage / "swap", server.storage / "asides", threading.Event()
    asides.mkdir()

    def swap() -> None:
        for name in itertools.count():
            with contextlib.suppress(OSError):  # the server makes the folder anew meanwhile, or it is a link
                os.rename(folder, asides / str(name))
            with contextlib.suppress(OSError):
                folder.symlink_to(outside, target_is_directory=True)
            with contextlib.suppress(OSError):
                folder.unlink()
            if done.is_set():
                return

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        answers = [ask(server, f"swap/{i}") for i in range(ROUNDS)]
    finally:
        done.set()
        swapper.join()

    assert {answer.status_code for answer in answers} <= {200, 400}
    assert list(outside.iterdir()) == []
    server.assert_whole()


def test_a_path_for_several_prompts_is_refused(server):
    answer = server.post(prompt=["a", "b"], max_tokens=1, kv_transfer_params={"hidden_states_path": "a"})
    assert_refused(answer)


@pytest.mark.parametrize("path", [None, "deep/a ü"])
def test_a_file_is_read_over_http_and_deleted(server, path):
    params = server.post(prompt=IDS, max_tokens=1, kv_transfer_params={"hidden_states_path": path}).json()
    told = params["kv_transfer_params"]
    route = f"/v1/hidden_states/{told['handle']}"

    on_storage = Path(told["hidden_states_path"]).read_bytes()
    got = server.get(route)
    deleted = httpx.delete(server.url + route, timeout=TIMEOUT_S, trust_env=False)

    assert got.content == on_storage
    assert load(got.content)["token_ids"].tolist() == IDS
    assert deleted.json() == {"id": told["handle"], "object": "hidden_states", "deleted": True}
    assert server.files() == []
    assert server.get(route).status_code == 404
    assert httpx.delete(server.url + route, timeout=TIMEOUT_S, trust_env=False).status_code == 404


def test_a_file_that_the_client_moved_away_is_not_found(server):
    told = server.post(prompt=IDS, max_tokens=1).json()["kv_transfer_params"]
    Path(told["hidden_states_path"]).rename(server.storage / "mine")
    answer = server.get(f"/v1/hidden_states/{told['handle']}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (404, "handle")


@pytest.mark.parametrize(
    "handle",
    [
        "x",
        "..",
        "path.",
        "path.Li4vb3V0c2lkZQ",
        "path.!!!",
        "path.L2V0Yy9wYXNzd2Q",
        "cmpl-1",
        "%2e%2e%2fa",
        "a%00b",
        "path._w",
    ],
)
def test_a_handle_that_is_none_of_ours_is_not_found(server, handle):
    assert server.get(f"/v1/hidden_states/{handle}").status_code == 404


def test_handles_never_follow_links_and_never_block_on_pipes(tmp_path, outside):
    (outside / "secret").write_text("x")
    storage = Storage(tmp_path / "storage")
    try:
        (storage.root / "link").symlink_to(outside / "secret")
        (storage.root / "folder").symlink_to(outside)
        os.mkfifo(storage.root / "pipe")
        for path in ("link", "folder/secret", "none", "none/none"):
            with pytest.raises(NotFound):
                storage.open_file(storage.chosen_place(path))
        os.close(storage.open_file(storage.chosen_place("pipe")))
        assert not storage.remove(storage.chosen_place("folder/secret"))
        assert (outside / "secret").exists()
        with pytest.raises(BadRequest):
            storage.chosen_place("\ud800")
    finally:
        storage.close()
        (outside / "secret").unlink()


def test_a_storage_that_cannot_be_written_is_refused_at_the_start(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ShardError, match="--storage"):
        Storage(tmp_path / "file")
