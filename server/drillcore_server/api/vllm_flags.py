"""vLLM's `--speculative-config` and `--kv-transfer-config` for the method `extract_hidden_states`.

    --speculative-config '{"method": "extract_hidden_states", "num_speculative_tokens": 1,
                           "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": [2, 16, 29, 32]}}}'
    --kv-transfer-config '{"kv_connector": "ExampleHiddenStatesConnector", "kv_role": "kv_producer",
                           "kv_connector_extra_config": {"shared_storage_path": "/dev/shm/hidden_states"}}'

Source: vLLM's docs/features/speculative_decoding/extract_hidden_states.md and its connector of that name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from drillcore_server.connector.file_sink import NUM_WRITER_THREADS
from drillcore_server.errors import ShardError
from drillcore_spec.reasons import Reason


class _Blob(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class DraftModel(_Blob):
    """The layers."""

    eagle_aux_hidden_state_layer_ids: Annotated[list[int], Field(min_length=1)]


class DraftModelConfig(_Blob):
    """Where vLLM keeps the layers."""

    hf_config: DraftModel


class SpeculativeConfig(_Blob):
    """`--speculative-config`."""

    method: Literal["extract_hidden_states"]
    num_speculative_tokens: Literal[1] = 1
    draft_model_config: DraftModelConfig

    @property
    def layers(self) -> tuple[int, ...]:
        """Ids in vLLM's numbering, which is ours."""
        return tuple(self.draft_model_config.hf_config.eagle_aux_hidden_state_layer_ids)


class ConnectorOptions(_Blob):
    """`kv_connector_extra_config`."""

    shared_storage_path: Path = Field(default=Path("/tmp"), strict=False)
    num_writer_threads: Annotated[int, Field(ge=1)] = NUM_WRITER_THREADS
    use_synchronization_lock: bool = True
    """Not used: a file has its name only when it is complete."""
    allow_custom_save_path: bool = False
    """Not used: paths that clients choose are confined to the storage."""


class KVTransferConfig(_Blob):
    """`--kv-transfer-config`."""

    kv_connector: Literal["ExampleHiddenStatesConnector"]
    kv_role: Literal["kv_producer", "kv_both"] = "kv_producer"
    kv_connector_extra_config: ConnectorOptions = ConnectorOptions()
    engine_id: Any = None
    """Not used: there is one engine."""


_Parsed = TypeVar("_Parsed", bound=_Blob)


def parse_blob(kind: type[_Parsed], flag: str, text: str) -> _Parsed:
    """One of the two blobs.

    Raises:
        ShardError: BadSpec, naming the flag and every wrong field.
    """
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, problem['loc'])) or 'the whole'}: {problem['msg']}"
            for problem in error.errors(include_input=False, include_url=False)
        )
        raise ShardError(Reason.BAD_SPEC, f"`{flag}` is not a config of extract_hidden_states: {problems}") from None
