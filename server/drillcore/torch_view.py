"""An output as a torch dataset, without a copy: tensors over the mapped files.

    from torch.utils.data import DataLoader
    from drillcore.torch_view import SampleDataset, collate_packed

    dataset = SampleDataset(drillcore.open("out"), layer=16)
    dataset[0]["hidden_states"]                                # [P, hidden] bfloat16, where the file stores it
    for batch in DataLoader(dataset, 32, shuffle=True, num_workers=4, collate_fn=collate_packed):
        batch["hidden_states"], batch["cu_states"]             # [all P, hidden], [33]

The one module of this package that imports torch. Shapes: S tokens, P states, C columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset

from drillcore.output import Output
from drillcore.sample import column_of

SampleTensors = dict[str, torch.Tensor]


def as_tensor(array: npt.NDArray[Any]) -> torch.Tensor:
    """A tensor over an array's own memory: of a sample, or a batch of `Output.activations`.

    A change of it stays in this process's memory and never reaches the file.
    """
    if array.dtype == ml_dtypes.bfloat16:
        return as_tensor(array.view(np.int16)).view(torch.bfloat16)
    # torch warns of arrays that may not be written; the map under a sample's arrays is private, so that these may be.
    view = array.view()
    view.flags.writeable = True
    return torch.from_numpy(view)


class SampleDataset(Dataset[SampleTensors]):
    """The samples of an output by position, each a dictionary of tensors.

    | key | shape | |
    |---|---|---|
    | `row` | [] | row of the dataset |
    | `token_ids` | [S] | int64 |
    | `hidden_states` | [P, C, hidden], or [P, hidden] of one layer | as stored |
    | `num_prompt_tokens` | [] | tokens before the first generated one |
    | `positions` | [P] | int32; not there for means |
    | `loss_mask` | [S] | uint8; only when the job has one |

    Pickled by the output's path: workers of a DataLoader, forked or spawned, map the files themselves.
    """

    def __init__(self, output: Output, layer: int | str | None = None) -> None:
        """Read from an output.

        Args:
            output: the samples.
            layer: a layer id or "finalNorm"; None for all columns.

        Raises:
            ValueError: when the layer was not extracted.
        """
        if layer is not None:
            column_of(output.columns, layer)
        self.output = output
        self.layer = layer

    def __len__(self) -> int:
        return len(self.output)

    def __getitem__(self, position: int) -> SampleTensors:
        """The sample at a position; raises as `Output.__getitem__`."""
        sample = self.output[position]
        states = sample.hidden_states if self.layer is None else sample.layer(self.layer)
        tensors = {
            "row": torch.tensor(sample.row),
            "token_ids": as_tensor(sample.token_ids),
            "hidden_states": as_tensor(states),
            "num_prompt_tokens": torch.tensor(sample.num_prompt_tokens),
        }
        for name, array in (("positions", sample.positions), ("loss_mask", sample.loss_mask)):
            if array is not None:
                tensors[name] = as_tensor(array)
        return tensors


def collate_packed(samples: Sequence[SampleTensors]) -> SampleTensors:
    """Samples of any lengths, one after another, for a DataLoader's `collate_fn`; B samples.

    Single values become [B]; where the others end is told by `cu_seqlens` (tokens) and `cu_states` (states), [B + 1].
    """
    batch = {
        key: torch.stack(values) if values[0].ndim == 0 else torch.cat(values)
        for key in samples[0]
        for values in [[sample[key] for sample in samples]]
    }
    for key, lengths_of in (("cu_seqlens", "token_ids"), ("cu_states", "hidden_states")):
        lengths = torch.tensor([0, *(len(sample[lengths_of]) for sample in samples)])
        batch[key] = lengths.cumsum(0)
    return batch
