"""The chat template that a job brings along."""

from __future__ import annotations

from drillcore_server.errors import ShardError
from drillcore_server.volumes import Volumes
from drillcore_spec.dataset import DatasetSource
from drillcore_spec.reasons import Reason

MAX_TEMPLATE_BYTES = 1 << 20
"""The longest templates in use have some 20 KB."""


def load_chat_template(source: DatasetSource, volumes: Volumes) -> str | None:
    """The Jinja text that `chatTemplate` names; None when the job uses the model's own.

    Raises:
        ShardError: DATASET_NOT_FOUND when no file is there; BAD_DATASET when it is no text of sensible size.
    """
    if source.chat_template is None:
        return None
    path = volumes.resolve(source.chat_template, "spec.dataset.chatTemplate", Reason.DATASET_NOT_FOUND)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_TEMPLATE_BYTES + 1)
    except OSError as error:
        raise ShardError(
            Reason.DATASET_NOT_FOUND, f"`spec.dataset.chatTemplate` {path} cannot be read: {error.strerror}"
        ) from error
    if len(content) > MAX_TEMPLATE_BYTES:
        raise ShardError(
            Reason.BAD_DATASET, f"`spec.dataset.chatTemplate` {path} must have at most {MAX_TEMPLATE_BYTES} bytes"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ShardError(
            Reason.BAD_DATASET, f"`spec.dataset.chatTemplate` {path} must be UTF-8; byte {error.start + 1} is not"
        ) from error
