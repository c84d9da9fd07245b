"""A server that renders conversations as a vLLM server does for speculators: transformers' apply_chat_template."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from transformers import AutoTokenizer


def serve(folder: str) -> str:
    """Answers with the tokenizer of `folder`, cut on the right, for as long as the process lives; the endpoint."""
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
    return f"http://127.0.0.1:{server.server_port}"
