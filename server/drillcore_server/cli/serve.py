"""`drillcore serve`: an OpenAI-compatible server that answers each prompt with a file of states."""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import sys
from pathlib import Path
from typing import Any, Final

from drillcore_server.cli.run import volumes_of
from drillcore_server.cli.serve_arguments import VLLM_DTYPES
from drillcore_server.errors import ShardError
from drillcore_spec.enums import DType, LayerConvention
from drillcore_spec.reasons import Reason

_HUB_NAME: Final = re.compile(r"[\w.-]+/[\w.-]+")
_AS_TYPED: Final = (
    "revision",
    "host",
    "port",
    "max_queue",
    "max_body_bytes",
    "drain_s",
    "max_model_len",
    "max_num_batched_tokens",
    "max_num_seqs",
    "num_writer_threads",
)
"""Flags that are fields of the settings as they stand."""


def command(arguments: argparse.Namespace) -> int:
    """Serves until SIGTERM; 0."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    # A model's and a web server's libraries take seconds to import: mistakes in the flags are told before.
    options = options_of(arguments)
    from drillcore_server.api.serving import run_server
    from drillcore_server.api.settings import ServeSettings, read_api_key

    settings = ServeSettings(api_key=read_api_key(arguments.api_key_file, dict(os.environ)), **options)

    def say(address: str) -> None:
        if arguments.json:
            sys.stdout.write(json.dumps({"url": address, "model": settings.model_id}) + "\n")
        else:
            sys.stdout.write(f"{settings.model_id} at {address}/v1, files in {settings.storage}\n")
        sys.stdout.flush()

    run_server(settings, volumes_of(arguments), say)
    return 0


def options_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The fields of `ServeSettings` that were typed."""
    options: dict[str, Any] = {name: value for name in _AS_TYPED if (value := getattr(arguments, name)) is not None}
    options |= _from_blobs(arguments)
    for flag in ("layers", "storage"):
        typed = getattr(arguments, flag)
        if typed is not None and options.get(flag, typed) != typed:
            raise ShardError(Reason.BAD_SPEC, f"`--{flag}` {typed} contradicts vLLM's config: {options[flag]}")
        if typed is not None:
            options[flag] = typed
        elif flag not in options:
            blob = "--speculative-config" if flag == "layers" else "--kv-transfer-config"
            raise ShardError(Reason.BAD_SPEC, f"`--{flag}`, or vLLM's `{blob}`, must be given")
    return options | {
        "model_uri": _model_uri(arguments.model),
        "model_id": arguments.served_model_name or arguments.model,
        "final_norm": arguments.final_norm,
        "layer_convention": LayerConvention(arguments.layer_convention),
        "dtype": DType(VLLM_DTYPES[arguments.dtype]),
        "store_dtype": DType(VLLM_DTYPES[arguments.store_dtype]),
        "generates": not arguments.extract_only,
        "prefix_caching": arguments.enable_prefix_caching,
    }


def _from_blobs(arguments: argparse.Namespace) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if arguments.speculative_config is None and arguments.kv_transfer_config is None:
        return options
    from drillcore_server.api.vllm_flags import KVTransferConfig, SpeculativeConfig, parse_blob

    if arguments.speculative_config is not None:
        speculative = parse_blob(SpeculativeConfig, "--speculative-config", arguments.speculative_config)
        options["layers"] = speculative.layers
    if arguments.kv_transfer_config is not None:
        transfer = parse_blob(KVTransferConfig, "--kv-transfer-config", arguments.kv_transfer_config)
        connector = transfer.kv_connector_extra_config
        options["storage"] = connector.shared_storage_path
        options["num_writer_threads"] = arguments.num_writer_threads or connector.num_writer_threads
    return options


def _model_uri(typed: str) -> str:
    """A folder that is there, else a URI, else a model of the hub, as vLLM takes it."""
    if "://" in typed:
        return typed
    folder = Path(typed)
    if not folder.is_dir() and _HUB_NAME.fullmatch(typed):
        return f"hf://{typed}"
    return folder.absolute().as_uri()
