"""Writes rows of token ids as speculators' preparation does; run by an interpreter that has speculators.

python save_rows.py ROWS_JSON DATASET_FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from datasets import Dataset

rows = json.loads(Path(sys.argv[1]).read_text())
columns = {"input_ids": rows, "loss_mask": [[1] * len(row) for row in rows]}
dataset = Dataset.from_dict(columns)
dataset.set_format("torch")
dataset.save_to_disk(sys.argv[2])
