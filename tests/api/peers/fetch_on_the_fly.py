"""Fetches rows as speculators' trainer does while it trains; run by an interpreter that has speculators.

    python fetch_on_the_fly.py ROWS_JSON ENDPOINT STORAGE > shapes.json

The client is speculators' own, the files are read and deleted by hs-connectors' class, and checked by speculators.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

import openai
from hs_connectors import FileTransfer
from speculators.data_generation.offline import check_hidden_states
from speculators.data_generation.vllm_client import generate_hidden_states


def main() -> None:
    rows, endpoint, storage = json.loads(Path(sys.argv[1]).read_text()), sys.argv[2], Path(sys.argv[3])
    transfer, shapes = FileTransfer(storage), []
    transfer.setup()
    with contextlib.redirect_stdout(sys.stderr), openai.OpenAI(base_url=endpoint, api_key="EMPTY") as client:
        model = client.models.list().data[0].id
        for row in rows:
            handle, params = generate_hidden_states(client, model, {"input_ids": row}, max_retries=0)
            data = transfer.get_generated(params)
            check_hidden_states(data, row)
            shapes.append(list(data["hidden_states"].shape))
            transfer.delete(handle)
    json.dump(shapes, sys.stdout)


if __name__ == "__main__":
    main()
