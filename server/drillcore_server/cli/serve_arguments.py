"""What can be typed after `drillcore serve`. Flags that vLLM has too have its names, with `-` or `_`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

VLLM_DTYPES: Final = {
    "auto": "Auto",
    "float32": "Float32",
    "float": "Float32",
    "float16": "Float16",
    "half": "Float16",
    "bfloat16": "BFloat16",
}
"""vLLM's names of number formats."""


def add_serve_arguments(parser: argparse.ArgumentParser) -> None:
    """Every flag; the defaults that are None stand in `ServeSettings`."""
    parser.add_argument("model", help="a model folder, an ORG/NAME of a hub, or an hf://, file:// or pvc:// URI")
    parser.add_argument("--revision", help="revision of a hub's model")
    _flag(parser, "--served-model-name", metavar="ID", help="what /v1/models says; default: MODEL as it is typed")
    _add_states(parser)
    _add_http(parser)
    _add_engine(parser)


def _add_states(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("states")
    group.add_argument(
        "--layers", type=_layers, metavar="I,J,...", help="layer ids, in the order of the files' columns"
    )
    _flag(group, "--final-norm", action="store_true", help="the state after the final norm, as the last column")
    _flag(
        group,
        "--layer-convention",
        choices=("ResidualIn", "BlockOutput"),
        default="ResidualIn",
        help="what an id means: what enters block i (default, as in vLLM), or what leaves it",
    )
    _flag(group, "--store-dtype", choices=tuple(VLLM_DTYPES), default="auto", help="of the files; default: the model's")
    group.add_argument("--storage", type=Path, metavar="DIR", help="folder of the files")
    _flag(group, "--speculative-config", metavar="JSON", help="vLLM's, for the method extract_hidden_states: --layers")
    _flag(group, "--kv-transfer-config", metavar="JSON", help="vLLM's, for ExampleHiddenStatesConnector: --storage")
    _flag(group, "--num-writer-threads", type=int, metavar="N", help="files written at the same time; default: 8")


def _add_http(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("HTTP")
    group.add_argument("--host", help="address to listen at; default: 127.0.0.1, this machine only")
    group.add_argument("--port", type=int, help="default: 8000; 0: any free one")
    _flag(
        group,
        "--api-key-file",
        type=Path,
        metavar="FILE",
        help="ask clients for the API key in this file; default: for DRILLCORE_API_KEY, if it is set",
    )
    _flag(group, "--max-queue", type=int, metavar="N", help="prompts accepted and not answered; default: 4096")
    _flag(group, "--max-body-bytes", type=int, metavar="N", help="longest body of a request; default: 4194304")
    _flag(group, "--drain-s", type=float, metavar="S", help="how long SIGTERM waits for what runs; default: 600")


def _add_engine(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("engine")
    group.add_argument("--dtype", choices=tuple(VLLM_DTYPES), default="auto", help="of weights and computation")
    _flag(group, "--extract-only", action="store_true", help="no generation: layers above the last one are not loaded")
    _flag(group, "--max-model-len", type=int, metavar="N", help="tokens of the longest request; default: the model's")
    _flag(group, "--max-num-batched-tokens", type=int, metavar="N", help="tokens of a step; default: 8192")
    _flag(group, "--max-num-seqs", type=int, metavar="N", help="requests that run at once; default: 1024")
    _flag(
        group,
        "--enable-prefix-caching",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="blocks of finished requests serve later ones with the same prefix",
    )
    _flag(
        group,
        "--enable-chunked-prefill",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="taken and not used: prompts are prefilled in chunks, which does not change their states",
    )


def _flag(parser: argparse._ActionsContainer, name: str, **options: object) -> None:
    parser.add_argument(name, "--" + name[2:].replace("-", "_"), **options)  # type: ignore[arg-type]


def _layers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected layer ids with commas between them, got {text!r}") from None
