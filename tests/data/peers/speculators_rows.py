"""Training rows by speculators' own preparation; run by an interpreter that has speculators.

    python speculators_rows.py TOKENIZER_FOLDER CONVERSATIONS_JSONL MAX_LENGTH > rows.json

speculators asks a vLLM server to render conversations. The server here answers as vLLM does: transformers'
apply_chat_template, cut on the right.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from speculators.data_generation.preprocessing import _preprocess_batch
from transformers import AutoTokenizer


def main() -> None:
    folder, conversations, max_length = sys.argv[1], sys.argv[2], int(sys.argv[3])
    tokenizer = AutoTokenizer.from_pretrained(folder)

    class Renderer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                ids = tokenizer.apply_chat_template(
                    asked["messages"], add_generation_prompt=asked["add_generation_prompt"], return_dict=True
                )["input_ids"]
                status, answer = 200, {"token_ids": ids[: asked["truncate_prompt_tokens"]]}
            except Exception as error:  # noqa: BLE001 - a template raises what it likes, and vLLM says 400
                status, answer = 400, {"error": str(error)}
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Renderer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    rows = []
    with open(conversations, encoding="utf-8") as file, contextlib.redirect_stdout(sys.stderr):
        for line in file:
            batch = {"conversations": [json.loads(line)["conversations"]]}
            made = _preprocess_batch(batch, False, endpoint, max_length)
            ids, masks = made["input_ids"], made["loss_mask"]
            rows.append([[i.tolist(), m.tolist()] for i, m in zip(ids, masks, strict=True)])
    json.dump(rows, sys.stdout)


if __name__ == "__main__":
    main()
