"""One sample of an output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from drillcore.part_file import Int64s


@dataclass(frozen=True, eq=False)
class Sample:
    """One row of the dataset and its states: S tokens, P states, C columns.

    The arrays are read-only views of the mapped file; copy what must outlive thousands of samples.
    """

    row: int
    id: str | None
    """The dataset's own id."""
    token_ids: Int64s
    """[S]: the whole sequence."""
    hidden_states: npt.NDArray[Any]
    """[P, C, hidden], float32, float16 or `ml_dtypes.bfloat16`."""
    positions: npt.NDArray[np.int32] | None
    """[P]: the token of each state; None for means."""
    loss_mask: npt.NDArray[np.uint8] | None
    """[S]: 1 where the token is supervised; None when the job has no loss mask."""
    num_prompt_tokens: int
    """Tokens before the first generated one."""
    original_tokens: int
    """Tokens before truncation."""
    last_token: int | None
    """The token sampled last, which has no state."""
    columns: tuple[int | str, ...]
    """Names of the C columns: layer ids, then `finalNorm`."""

    def __repr__(self) -> str:
        states = f"{self.hidden_states.dtype} {list(self.hidden_states.shape)}"
        return f"Sample(row={self.row}, id={self.id!r}, tokens={len(self.token_ids)}, hidden_states={states})"

    def layer(self, layer: int | str) -> npt.NDArray[Any]:
        """[P, hidden]: the states of one layer id, or of "finalNorm"; the other layers' bytes are not touched.

        Raises:
            ValueError: when the layer was not extracted.
        """
        view: npt.NDArray[Any] = self.hidden_states[:, column_of(self.columns, layer)]
        return view


def column_of(columns: tuple[int | str, ...], layer: int | str) -> int:
    """The index of a layer's column.

    Raises:
        ValueError: when the layer was not extracted.
    """
    if layer not in columns:
        raise ValueError(f"layer {layer!r} was not extracted; this output has {', '.join(map(str, columns))}")
    return columns.index(layer)
