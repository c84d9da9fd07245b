from collections.abc import Callable
from pathlib import Path

import pytest

from drillcore_server.data import load_chat_template
from drillcore_server.errors import ShardError
from drillcore_server.volumes import Volumes
from drillcore_spec.dataset import DatasetSource
from drillcore_spec.reasons import Reason


def _load(source_of: Callable[..., DatasetSource], uri: str | None) -> str | None:
    source = source_of(columns={"messages": "messages"}, chat_template=uri)
    return load_chat_template(source, Volumes(Path("/nowhere")))


def test_a_template_is_the_text_of_its_file(source_of: Callable[..., DatasetSource], tmp_path: Path) -> None:
    (tmp_path / "chat.jinja").write_bytes("\ufeff{{ messages }}é\n".encode())
    assert _load(source_of, f"file://{tmp_path}/chat.jinja") == "{{ messages }}é\n"
    assert _load(source_of, None) is None


@pytest.mark.parametrize(
    ("content", "reason", "said"),
    [
        (None, Reason.DATASET_NOT_FOUND, "No such file"),
        (b"\xff", Reason.BAD_DATASET, "must be UTF-8; byte 1"),
        (b" " * (2 << 20), Reason.BAD_DATASET, "at most"),
    ],
)
def test_a_template_that_cannot_be_one_is_refused(
    source_of: Callable[..., DatasetSource], tmp_path: Path, content: bytes | None, reason: Reason, said: str
) -> None:
    if content is not None:
        (tmp_path / "chat.jinja").write_bytes(content)
    with pytest.raises(ShardError, match=r"`spec\.dataset\.chatTemplate`") as caught:
        _load(source_of, f"file://{tmp_path}/chat.jinja")
    assert caught.value.reason is reason
    assert said in caught.value.message
