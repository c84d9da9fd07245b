"""docs/install.md and docs/kueue.md name values, files and fields that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry

from drillcore_operator.api.metrics import LookMetrics, ReportMetrics, install_process_metrics
from drillcore_operator.work_queue import WorkQueue
from drillcore_spec import ExtractionJob, load_job
from drillcore_status.metrics import RequestMetrics
from drillcore_status.stream import StreamSlots

ROOT = Path(__file__).parents[2]
INSTALL = (ROOT / "docs" / "install.md").read_text()
VALUES = yaml.safe_load((ROOT / "charts" / "drillcore" / "values.yaml").read_text())


def test_every_value_that_is_named_is_the_charts():
    named = set(re.findall(rf"`((?:{'|'.join(VALUES)})[\w.*]*)", INSTALL))
    assert len(named) > 10
    for path in named:
        value = VALUES
        for key in path.split("."):
            value = next(iter(value.values())) if key == "*" else value[key]


@pytest.mark.parametrize("page", ["install.md", "rbac.md", "kueue.md", "troubleshooting.md"])
def test_every_link_leads_to_a_file(page):
    text = (ROOT / "docs" / page).read_text()
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / "docs" / target).is_file(), target


def test_the_example_for_a_cluster_is_a_job_that_can_be_run():
    job = load_job(ROOT / "examples" / "jobs" / "cluster.yaml")
    assert job.metadata.name in INSTALL
    assert job.spec.server.resources.gpus == 1


def test_the_queue_of_the_kueue_page_is_a_field():
    text = (ROOT / "docs" / "kueue.md").read_text()
    spec = yaml.safe_load(re.search(r"```yaml\n(.*?)```", text, re.DOTALL)[1])["spec"]
    base = yaml.safe_load((ROOT / "examples" / "jobs" / "cluster.yaml").read_text())
    assert ExtractionJob.from_resource(base | {"spec": base["spec"] | spec}).spec.queue.name == "research"


def test_the_metrics_that_are_named_are_those_of_the_operator():
    registry = CollectorRegistry()
    ReportMetrics(registry)
    LookMetrics(registry)
    RequestMetrics(registry, StreamSlots())
    install_process_metrics(registry, WorkQueue(), lambda: None)
    families = [family for family in registry.collect() if family.name.startswith("drillcore_")]
    names = {f"{family.name}_total" if family.type == "counter" else family.name for family in families}
    assert set(re.findall(r"`(drillcore_\w+)`", INSTALL)) == names
