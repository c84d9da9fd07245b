"""Enumerations of the job spec and of its messages; values are CamelCase as the Kubernetes API conventions ask."""

from __future__ import annotations

from enum import StrEnum


class DType(StrEnum):
    """Number format of weights and computation (`model.dtype`) or of stored states
    (`extraction.storeDtype`).
    """

    AUTO = "Auto"
    FLOAT32 = "Float32"
    FLOAT16 = "Float16"
    BFLOAT16 = "BFloat16"


class DatasetFormat(StrEnum):
    """File format of the dataset; Auto goes by the file names."""

    AUTO = "Auto"
    JSONL = "Jsonl"
    PARQUET = "Parquet"
    ARROW = "Arrow"


class Overlong(StrEnum):
    """What happens to a row with more tokens than maxModelLen."""

    TRUNCATE = "Truncate"
    """The head is kept and the original length recorded."""
    SKIP = "Skip"
    """The row is quarantined, and does not count against maxQuarantinedPercent."""
    FAIL = "Fail"
    """The job ends with BadDataset."""


class LossMaskKind(StrEnum):
    """Where the loss mask of a row comes from."""

    AUTO = "Auto"
    """Column if columns.lossMask is set, else Assistant for messages, else None."""
    COLUMN = "Column"
    ASSISTANT = "Assistant"
    NONE = "None"


class LayerConvention(StrEnum):
    """What a number in `layers` means; the model has L blocks."""

    RESIDUAL_IN = "ResidualIn"
    """Id i is the residual stream that enters block i, 0 <= i <= L; L is the last block's output before the
    final norm.
    """
    BLOCK_OUTPUT = "BlockOutput"
    """Id i is the output of block i, 0 <= i <= L-1."""


class PositionsKind(StrEnum):
    """Which token positions of a row are stored."""

    ALL = "All"
    LAST = "Last"
    MEAN = "Mean"
    LOSS_MASK = "LossMask"
    WINDOW = "Window"
    STRIDE = "Stride"


class OutputLayout(StrEnum):
    """How states are laid out in files."""

    PACKED = "Packed"
    """Many rows a file: few files, fit for network file systems."""
    PER_SAMPLE = "PerSample"
    """One file a row, as speculators' trainer reads them."""


class ShardState(StrEnum):
    """Where a shard's attempt stands."""

    STARTING = "Starting"
    RUNNING = "Running"
    COMMITTED = "Committed"
    FAILED = "Failed"
