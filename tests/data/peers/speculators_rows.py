"""Training rows by speculators' own preparation; run by an interpreter that has speculators.

python speculators_rows.py TOKENIZER_FOLDER CONVERSATIONS_JSONL MAX_LENGTH > rows.json
"""

from __future__ import annotations

import contextlib
import json
import sys

from renderer import serve
from speculators.data_generation.preprocessing import _preprocess_batch


def main() -> None:
    folder, conversations, max_length = sys.argv[1], sys.argv[2], int(sys.argv[3])
    endpoint = serve(folder)
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
