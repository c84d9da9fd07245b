import drillcore

PUBLIC = {
    *("Activations", "CleanReport", "Counts", "InspectReport", "LayerStats", "Layout", "Manifest", "Output"),
    *("QuarantineEntry", "QuarantineReason", "Sample", "VerifyReport", "clean", "inspect", "open", "verify"),
    *("ChecksumError", "DrillcoreError", "FormatError", "OutputForeignError", "OutputIOError", "OutputIdentityError"),
    *("OutputIncompleteError", "OutputNotFoundError", "OutputUnwritableError", "OutputVolumeFullError", "ReadError"),
    *("RowCountError", "RowNotFoundError", "UnsupportedVersionError", "WriteError"),
}


def test_the_public_names_are_pinned_and_documented():
    assert set(drillcore.__all__) == PUBLIC
    assert all(getattr(drillcore, name).__doc__ for name in PUBLIC)
