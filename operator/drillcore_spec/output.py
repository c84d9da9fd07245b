"""`spec.output`: where states are written."""

from __future__ import annotations

from drillcore_spec.base import SpecModel
from drillcore_spec.enums import OutputLayout
from drillcore_spec.forms import ByteQuantity, ObjectName, RelativePath, Seconds
from drillcore_spec.uris import no_parent_folder


class Output(SpecModel):
    """The volume, and how files are cut."""

    claim_name: ObjectName
    """PersistentVolumeClaim in the job's namespace; several shards at once need ReadWriteMany."""
    sub_path: RelativePath | None = None
    """Folder in the claim; a job with the same output goes on from the rows that are committed there.
    Default: the claim's root.
    """
    layout: OutputLayout = OutputLayout.PACKED
    """Packed: many rows a file. PerSample: one file a row, as speculators' trainer reads them; only with
    positions All.
    """
    part_size: ByteQuantity = "1Gi"
    """A file is closed, and its rows are committed, when it has this size."""
    commit_interval_seconds: Seconds = 60
    """A file is closed, and its rows are committed, after this time at the latest."""
    size_limit: ByteQuantity | None = None
    """The job stops with OutputSizeLimit before it writes more than this. Default: no limit."""

    rules = (no_parent_folder("sub_path"),)
