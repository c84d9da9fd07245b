"""What speculators' checks and its training dataset say of hidden states; run by an interpreter that has speculators.

python speculators_training.py DATASET_FOLDER SAMPLES_FOLDER MAX_LENGTH > report.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from hs_connectors import FileTransfer
from safetensors.torch import load_file
from speculators.data_generation.offline import (
    check_hidden_states,
    find_corrupt_hidden_state_indices,
    get_existing_hidden_state_indices,
)
from speculators.train.data import ArrowDataset, CollateFn


def main() -> None:
    folder, samples, max_length = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    indices = get_existing_hidden_state_indices(samples)
    dataset = ArrowDataset(max_length, folder, FileTransfer(samples), on_missing="raise")
    for index in indices:
        stored = load_file(samples / f"hs_{index}.safetensors")
        check_hidden_states(stored, dataset.data[index]["input_ids"].tolist())
    items = [dataset[index] for index in range(len(dataset))]
    hidden_size = items[0]["verifier_last_hidden_states"].shape[1]
    num_layers = items[0]["hidden_states"].shape[1] // hidden_size
    batch = CollateFn(max_length, hidden_size, num_layers)([dict(item) for item in items[:2]])
    report = {
        "indices": indices,
        "corrupt": find_corrupt_hidden_state_indices(samples, indices),
        "dtype": str(items[0]["hidden_states"].dtype),
        "items": [_summary(item) for item in items],
        "batch": {key: list(value.shape) for key, value in batch.items() if isinstance(value, torch.Tensor)},
    }
    json.dump(report, sys.stdout)


def _summary(item: dict[str, torch.Tensor]) -> dict[str, object]:
    return {
        "input_ids": item["input_ids"].tolist(),
        "loss_mask": item["loss_mask"].int().tolist(),
        "hidden_states": [list(item["hidden_states"].shape), item["hidden_states"].double().sum().item()],
        "last": [
            list(item["verifier_last_hidden_states"].shape),
            item["verifier_last_hidden_states"].double().sum().item(),
        ],
    }


if __name__ == "__main__":
    main()
