"""A real small file system, full: needs a mount, which an unprivileged user namespace permits."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import errno, os, subprocess, sys
from pathlib import Path
sys.path[:0] = {path!r}
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("maker", {conftest!r})
maker_module = module_from_spec(spec)
sys.modules["maker"] = maker_module
spec.loader.exec_module(maker_module)
import drillcore
from drillcore.part_writer import PartWriter

root = Path({root!r})
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(root)], check=True)
maker = maker_module.Maker(root)
ballast = root / ".ballast"
ballast.write_bytes(bytes(700_000))
maker.claim()
folder = maker.layout.shard(0)
folder.directory.mkdir()
writer = PartWriter(folder.part(0, "00000001"), maker.schema)
row = 0
try:
    while True:
        maker.write(writer, [row])
        row += 1
except drillcore.OutputVolumeFullError as error:
    print("full:", error.reason)
writer.abandon()
print("left:", [path.name for path in folder.directory.iterdir()])
ballast.unlink()
commit = maker.shard([range(row)], attempt="00000002")
maker.complete()
print("resumed:", commit.counts.rows_out == row > 100, drillcore.verify(root).ok)
"""


def may_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not may_mount(), reason="needs unshare with user and mount namespaces")
def test_a_full_volume_is_told_leaves_no_partial_file_and_takes_more_once_there_is_space(tmp_path):
    program = PROGRAM.format(
        path=[path for path in sys.path if path],
        conftest=str(Path(__file__).with_name("conftest.py")),
        root=str(tmp_path),
    )
    run = subprocess.run(
        ["unshare", "-Urm", sys.executable, "-c", program], capture_output=True, text=True, check=False, env=os.environ
    )
    assert run.stdout.splitlines() == ["full: OutputVolumeFull", "left: []", "resumed: True True"], run.stderr
