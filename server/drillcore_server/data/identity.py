"""What makes two runs read the same data: part of the output's manifest."""

from __future__ import annotations

import hashlib

from drillcore.json_fields import JsonValue
from drillcore_server.data.dataset import Dataset
from drillcore_server.data.loss_mask import resolve_loss_mask
from drillcore_spec.dataset import DatasetSource


def dataset_identity(dataset: Dataset, source: DatasetSource, chat_template: str | None = None) -> dict[str, JsonValue]:
    """The `dataset` object of the manifest: the files, and every setting that changes a row or its tokens.

    Args:
        dataset: what was found under the source's URI.
        source: the job's dataset.
        chat_template: Jinja text in place of the model's own; the model's is part of the tokenizer's identity.
    """
    columns: dict[str, JsonValue] = source.columns.model_dump(mode="json", by_alias=True, exclude_none=True)
    identity: dict[str, JsonValue] = {
        "uri": source.uri,
        "revision": dataset.revision,
        "split": source.split,
        "files": [file.to_json() for file in dataset.files],
        "format": dataset.format.value,
        "columns": columns,
        "lossMask": resolve_loss_mask(source).value,
        "maxSamples": source.max_samples,
        "contextSize": source.context_size,
        "overlong": source.overlong.value,
        "chatTemplateKwargs": dict(source.chat_template_kwargs),
    }
    if chat_template is not None:
        identity["chatTemplateSha256"] = hashlib.sha256(chat_template.encode()).hexdigest()
    return identity
