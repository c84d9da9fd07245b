"""The dataset that `speculators prepare-data` makes of conversations; run by an interpreter that has speculators.

python speculators_prepare.py MODEL_FOLDER CONVERSATIONS_JSONL MAX_LENGTH DATASET_FOLDER
"""

from __future__ import annotations

import sys

from renderer import serve
from speculators.data_generation.preprocessing import load_and_preprocess_dataset


def main() -> None:
    model, conversations, max_length, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    dataset, _ = load_and_preprocess_dataset(
        model, [conversations], seq_length=max_length, build_dataset_num_proc=1, render_endpoint=serve(model)
    )
    dataset.save_to_disk(folder)


if __name__ == "__main__":
    main()
