"""Element types of what stands on disk, by their safetensors names."""

from __future__ import annotations

from enum import StrEnum

import ml_dtypes
import numpy as np


class StoreDType(StrEnum):
    """Element type of the stored hidden states."""

    F32 = "F32"
    F16 = "F16"
    BF16 = "BF16"

    @property
    def numpy(self) -> np.dtype:
        """The numpy type; bfloat16 is `ml_dtypes.bfloat16`."""
        return NUMPY_DTYPES[self.value]

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.numpy.itemsize


NUMPY_DTYPES: dict[str, np.dtype] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I64": np.dtype("<i8"),
    "U64": np.dtype("<u8"),
    "I32": np.dtype("<i4"),
    "U8": np.dtype("u1"),
}
"""Every element type that a file of ours can hold."""
