"""Index arithmetic over many small ranges at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def concatenated_ranges(starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The indices of all ranges [start, start + length), one range after another."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    indices: npt.NDArray[np.int64] = np.repeat(starts - (ends - lengths), lengths)
    indices += np.arange(total, dtype=np.int64)
    return indices
