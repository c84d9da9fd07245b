"""Read what drillcore wrote.

    import drillcore

    output = drillcore.open("out")
    sample = output[0]
    sample.token_ids                    # [S]
    sample.layer(16)                    # [P, hidden]
    for batch in output.activations(16, batch_size=4096, shuffle_buffer=100_000):
        ...                             # [4096, hidden]

numpy, safetensors, ml_dtypes and xxhash; no torch. What the sidecar writes with is in the submodules.
"""

from __future__ import annotations

from drillcore.activations import Activations
from drillcore.cleaning import CleanReport, clean
from drillcore.counts import Counts, LayerStats
from drillcore.errors import (
    ChecksumError,
    DrillcoreError,
    FormatError,
    OutputForeignError,
    OutputIdentityError,
    OutputIncompleteError,
    OutputIOError,
    OutputNotFoundError,
    OutputUnwritableError,
    OutputVolumeFullError,
    ReadError,
    RowCountError,
    RowNotFoundError,
    UnsupportedVersionError,
    WriteError,
)
from drillcore.inspection import InspectReport, inspect
from drillcore.layout import Layout
from drillcore.manifest import Manifest
from drillcore.output import Output, open
from drillcore.records import QuarantineEntry, QuarantineReason
from drillcore.sample import Sample
from drillcore.verification import VerifyReport, verify

__all__ = [
    "Activations",
    "ChecksumError",
    "CleanReport",
    "Counts",
    "DrillcoreError",
    "FormatError",
    "InspectReport",
    "LayerStats",
    "Layout",
    "Manifest",
    "Output",
    "OutputForeignError",
    "OutputIOError",
    "OutputIdentityError",
    "OutputIncompleteError",
    "OutputNotFoundError",
    "OutputUnwritableError",
    "OutputVolumeFullError",
    "QuarantineEntry",
    "QuarantineReason",
    "ReadError",
    "RowCountError",
    "RowNotFoundError",
    "Sample",
    "UnsupportedVersionError",
    "VerifyReport",
    "WriteError",
    "clean",
    "inspect",
    "open",
    "verify",
]
