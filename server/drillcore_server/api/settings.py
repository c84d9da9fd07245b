"""What `drillcore serve` is told: everything that one server process is made of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from drillcore_server.connector.file_sink import MAX_HELD_BYTES, NUM_WRITER_THREADS
from drillcore_server.errors import ShardError
from drillcore_spec.enums import DType, LayerConvention
from drillcore_spec.reasons import Reason

ENV_API_KEY: Final = "DRILLCORE_API_KEY"
"""The API key, where no file is given. A command line is readable by every user of the machine."""
DEFAULT_PORT: Final = 8000
DEFAULT_MAX_QUEUE: Final = 4096
DEFAULT_MAX_BODY_BYTES: Final = 4 << 20
DEFAULT_DRAIN_S: Final = 600.0


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """One server.

    Raises:
        ShardError: BadSpec; a value is out of range.
    """

    model_uri: str
    """`file://`, `pvc://` or `hf://`."""
    model_id: str
    """What `/v1/models` says, and what requests must name."""
    layers: tuple[int, ...]
    storage: Path
    """Folder of the files; nothing is written elsewhere."""
    revision: str | None = None
    final_norm: bool = False
    layer_convention: LayerConvention = LayerConvention.RESIDUAL_IN
    dtype: DType = DType.AUTO
    store_dtype: DType = DType.AUTO
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    """0: any free one."""
    api_key: str | None = None
    """None: nobody is asked for one."""
    generates: bool = True
    """Whether tokens can be generated. If not, layers above the last one asked for are neither loaded nor run."""
    max_model_len: int | None = None
    """None: the positions that the model has."""
    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 1024
    prefix_caching: bool = True
    max_queue: int = DEFAULT_MAX_QUEUE
    """Prompts that are accepted and not answered; 4,096, as speculators' client loses a sample after a few 429s."""
    max_body_bytes: int = DEFAULT_MAX_BODY_BYTES
    """Longest body of a request; 131,072 token ids are about 900 KB."""
    num_writer_threads: int = NUM_WRITER_THREADS
    max_held_bytes: int = MAX_HELD_BYTES
    """States in host memory that wait for a writer thread."""
    drain_s: float = DEFAULT_DRAIN_S
    """How long SIGTERM waits for running requests."""

    def __post_init__(self) -> None:
        """Checks every limit."""
        least = {"max_num_batched_tokens": 1, "max_num_seqs": 1, "max_queue": 1, "max_body_bytes": 1024}
        least |= {"num_writer_threads": 1, "max_held_bytes": 1}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                flag = "--" + name.replace("_", "-")
                raise ShardError(Reason.BAD_SPEC, f"`{flag}` must be at least {bound}; got {getattr(self, name)}")


def read_api_key(path: Path | None, environ: dict[str, str]) -> str | None:
    """The API key from a file, else from the environment; None: there is none.

    Raises:
        ShardError: BadSpec; the file cannot be read, or the key is empty.
    """
    if path is None:
        key = environ.get(ENV_API_KEY)
        source = ENV_API_KEY
    else:
        source = f"--api-key-file {path}"
        try:
            key = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ShardError(Reason.BAD_SPEC, f"`{source}` cannot be read: {error}") from error
    if key is None:
        return None
    key = key.strip()
    if not key or not key.isascii():
        raise ShardError(
            Reason.BAD_SPEC, f"`{source}` must hold an API key of ASCII characters; it is empty or has others"
        )
    return key
