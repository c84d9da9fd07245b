import errno
from pathlib import Path

import pytest

import drillcore
from drillcore.errors import write_error
from drillcore_spec.reasons import Reason


@pytest.mark.parametrize(
    ("number", "error", "reason"),
    [
        (errno.ENOSPC, drillcore.OutputVolumeFullError, Reason.OUTPUT_VOLUME_FULL),
        (errno.EDQUOT, drillcore.OutputVolumeFullError, Reason.OUTPUT_VOLUME_FULL),
        (errno.EROFS, drillcore.OutputUnwritableError, Reason.OUTPUT_UNWRITABLE),
        (errno.EACCES, drillcore.OutputUnwritableError, Reason.OUTPUT_UNWRITABLE),
        (errno.ENOTDIR, drillcore.OutputUnwritableError, Reason.OUTPUT_UNWRITABLE),
        (errno.EIO, drillcore.OutputIOError, Reason.INTERNAL),
        (errno.ESTALE, drillcore.OutputIOError, Reason.INTERNAL),
    ],
)
def test_a_refused_write_tells_the_reason_that_ends_the_shard(number, error, reason):
    refused = write_error(Path("/out/x"), OSError(number, "refused"))
    assert type(refused) is error
    assert refused.reason is reason
    assert "/out/x" in str(refused)


def test_every_write_error_has_a_reason_of_the_table():
    subclasses = drillcore.WriteError.__subclasses__()
    assert len(subclasses) == 6
    for subclass in subclasses:
        assert subclass._reason in {reason.value for reason in Reason}


def test_an_unknown_row_is_a_key_error_with_a_readable_message():
    error = drillcore.RowNotFoundError("no sample of row 3")
    assert isinstance(error, KeyError)
    assert str(error) == "no sample of row 3"
