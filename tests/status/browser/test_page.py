"""What a person sees, clicks and types."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import expect

from drillcore_spec.status import ConditionType
from drillcore_status.views import JobEvent, Login, LoginKind, Shard, ShardPhase, ThroughputSample

pytestmark = pytest.mark.browser

KEY = ("team-a", "a-job")
TOKEN = "reader-of-team-a"
SCREENSHOT = Path(__file__).parents[3] / "docs" / "status-page.png"
MARKUP = '<img src=x onerror="alert(1)"><script>alert(2)</script>"\' onmouseover=alert(3) javascript:alert(4)'


def _status(percentage: int = 0, *, phase: str = "Running", reason: str = "Running", message: str = "") -> dict:
    succeeded = {"Succeeded": "True", "Failed": "False"}.get(phase, "Unknown")
    conditions = [
        _condition("Progressing", "True" if succeeded == "Unknown" else "False", "Running", "rows are being extracted"),
        _condition("Succeeded", succeeded, reason, message),
    ]
    return {
        "phase": phase,
        "conditions": conditions,
        "progress": {
            "rowsDone": percentage * 100,
            "rowsTotal": 10_000,
            "rowsQuarantined": 7,
            "percentage": percentage,
            "summary": f"{percentage}%",
            "tokens": percentage * 50_000,
            "bytes": percentage * 2**30,
            "estimatedRemainingSeconds": (100 - percentage) * 60,
        },
        "shards": {"total": 2, "active": 1, "succeeded": 1, "failed": 0, "summary": "1/2"},
        "output": {"uri": "pvc://states/llama-eagle3", "bytes": percentage * 2**30},
    }


def _condition(type_: str, status: str, reason: str, message: str) -> dict:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 1,
    }


def _log_in(page) -> None:
    page.get_by_label(re.compile("A token of the cluster")).fill(TOKEN)
    page.keyboard.press("Enter")


@pytest.fixture
def local_url(serve, open_services) -> str:
    """A server on which nobody logs in, as `drillcore run --status-port` has it."""
    return serve(replace(open_services, login=Login(kind=LoginKind.NONE, namespace="team-a")))


@pytest.fixture
def cluster_url(serve, services) -> str:
    return serve(replace(services, login=Login(namespace="team-a")))


def test_progress_moves_without_a_reload(open_page, local_url, jobs):
    jobs.put(status=_status(10))
    page = open_page(f"{local_url}/#/team-a/a-job")
    bar = page.get_by_role("progressbar")
    expect(bar).to_have_attribute("value", "10")
    page.evaluate("window.sameDocument = true")
    jobs.put(status=_status(60))
    expect(bar).to_have_attribute("value", "60")
    expect(page.get_by_text("6,000 of 10,000")).to_be_visible()
    assert page.evaluate("window.sameDocument")


def test_the_list_moves_without_a_reload_too(open_page, local_url, jobs):
    jobs.put(status=_status(10))
    page = open_page(local_url)
    bar = page.get_by_role("progressbar", name="Progress of a-job")
    expect(bar).to_have_attribute("value", "10")
    jobs.put(status=_status(30))
    expect(bar).to_have_attribute("value", "30", timeout=8000)


def test_a_failure_shows_its_reason_and_the_clusters_message(open_page, local_url, jobs):
    message = "shard 1, pod a-job-0-1: column text is missing in d.jsonl:3; correct dataset.columns"
    jobs.put(status=_status(40, phase="Failed", reason="BadDataset", message=message))
    jobs.shards[KEY] = [Shard(index=1, phase=ShardPhase.FAILED, reason="BadDataset", message="column text is missing")]
    page = open_page(local_url)
    row = page.get_by_role("row").filter(has_text="a-job")
    expect(row).to_contain_text("Failed")
    expect(row).to_contain_text("BadDataset")
    row.get_by_role("link").click()
    expect(page.locator("#why")).to_have_text(f"BadDataset: {message}")
    expect(page.get_by_role("table", name="Shards")).to_contain_text("column text is missing")


def test_a_job_that_waits_shows_the_message_of_the_condition_that_it_waits_for(open_page, local_url, jobs):
    status = _status(reason="Unschedulable", message="see condition PodsReady", phase="Pending")
    status["conditions"].append(
        _condition("PodsReady", "False", "Unschedulable", "0/3 nodes: Insufficient nvidia.com/gpu")
    )
    jobs.put(status=status)
    page = open_page(f"{local_url}/#/team-a/a-job")
    expect(page.locator("#why")).to_have_text("Unschedulable: 0/3 nodes: Insufficient nvidia.com/gpu")


def test_throughput_quarantine_events_and_deletion_are_shown(open_page, local_url, jobs):
    jobs.put(status=_status(20))
    jobs.samples[KEY] = [
        ThroughputSample(time_seconds=10.0 * i, rows_done=50 * i, tokens=20_000 * i, bytes=i) for i in range(5)
    ]
    jobs.events[KEY] = [
        JobEvent(type="Warning", reason="NodeLost", message="node gone", count=3, first_time="", last_time="")
    ]
    page = open_page(f"{local_url}/#/team-a/a-job")
    expect(page.get_by_text("2K tokens/s and 5 rows/s now")).to_be_visible()
    expect(page.locator("dl div").filter(has_text="Quarantined rows")).to_contain_text("7")
    expect(page.get_by_role("table", name="Events")).to_contain_text("NodeLost")
    del jobs.jobs[KEY]
    expect(page.get_by_role("status")).to_have_text("This job was deleted.")


def test_log_in_with_a_token_that_only_this_page_keeps(open_page, cluster_url, jobs):
    jobs.put(status=_status(10))
    page = open_page(cluster_url)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    _log_in(page)
    expect(page.get_by_role("link", name="a-job")).to_be_visible()
    assert not any(TOKEN in url for url in [*requests, page.url])
    stored = "JSON.stringify([localStorage, sessionStorage, document.cookie, document.documentElement.outerHTML])"
    assert TOKEN not in page.evaluate(stored)
    page.reload()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()


def test_a_wrong_token_is_refused_and_asked_for_again(open_page, cluster_url, jobs):
    jobs.put(status=_status(10))
    page = open_page(cluster_url)
    page.get_by_label(re.compile("A token of the cluster")).fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("status")).to_have_text("log in with a token of the cluster")
    expect(page.get_by_text("a-job")).to_have_count(0)
    _log_in(page)
    expect(page.get_by_role("link", name="a-job")).to_be_visible()


def test_a_token_that_is_revoked_ends_the_view(open_page, cluster_url, jobs, tokens):
    jobs.put(status=_status(10))
    page = open_page(f"{cluster_url}/#/team-a/a-job")
    _log_in(page)
    expect(page.get_by_role("progressbar")).to_be_visible()
    tokens.readers.clear()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    expect(page.get_by_role("progressbar")).to_have_count(0)


def test_a_namespace_that_one_may_not_read_says_so(open_page, cluster_url):
    page = open_page(cluster_url)
    _log_in(page)
    page.get_by_label("Namespace").fill("team-b")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_have_text("you may not get extractionjobs in team-b")


def test_log_out_forgets_the_token(open_page, cluster_url, jobs):
    jobs.put(status=_status(10))
    page = open_page(cluster_url)
    _log_in(page)
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    expect(page.get_by_role("link", name="a-job")).to_have_count(0)


def test_markup_in_any_string_stays_text(open_page, local_url, jobs):
    status = _status(10, phase="Failed", reason="BadDataset", message=MARKUP)
    status["conditions"] += [
        _condition(type_, "False", "Odd", MARKUP) for type_ in ConditionType if type_ != "Succeeded"
    ]
    status["output"]["uri"] = MARKUP
    status["shards"] |= {"failedIndexes": MARKUP, "summary": MARKUP}
    spec = {"model": {"uri": MARKUP}, MARKUP: [MARKUP], "podTemplate": {"annotations": {MARKUP: MARKUP}}}
    jobs.put(status=status, spec=spec)
    jobs.put(MARKUP, status=status)
    jobs.shards[KEY] = [Shard(index=0, phase=ShardPhase.FAILED, reason=MARKUP, message=MARKUP)]
    jobs.events[KEY] = [JobEvent(reason=MARKUP, message=MARKUP, first_time=MARKUP, last_time=MARKUP)]
    page = open_page(local_url)
    expect(page.get_by_role("link", name=MARKUP)).to_be_visible()
    page.goto(f"{local_url}/#/team-a/a-job")
    page.get_by_text("Spec", exact=True).click()
    expect(page.locator("#why")).to_contain_text(MARKUP)
    expect(page.locator("pre")).to_contain_text("onerror")
    expect(page.get_by_role("table", name="Events")).to_contain_text(MARKUP)
    assert page.locator("main script, main img, main [onmouseover], main [onerror]").count() == 0


@pytest.mark.parametrize("address", [f"#/{MARKUP}", "#/team-a/%3Cimg%20src=x%20onerror=alert(1)%3E", "#/%", "#//x/y/z"])
def test_markup_in_the_address_stays_text(open_page, local_url, address):
    page = open_page(f"{local_url}/{address}")
    expect(page.get_by_role("main")).not_to_be_empty()
    assert page.locator("main script, main img").count() == 0


def test_everything_is_reached_by_keyboard(open_page, cluster_url, jobs):
    jobs.put(status=_status(10))
    page = open_page(cluster_url)
    expect(page.get_by_label(re.compile("A token of the cluster"))).to_be_focused()
    page.keyboard.type(TOKEN)
    page.keyboard.press("Enter")
    link = page.get_by_role("link", name="a-job")
    expect(link).to_be_visible()
    for _ in range(10):
        if link.evaluate("node => node === document.activeElement"):
            break
        page.keyboard.press("Tab")
    outline = link.evaluate("node => getComputedStyle(node).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="a-job")).to_be_visible()


@pytest.mark.parametrize("width", [320, 390])
def test_a_phone_needs_no_sideways_scrolling(open_page, local_url, jobs, width):
    status = _status(40, phase="Failed", reason="BadDataset", message="x" * 300)
    jobs.put(status=status)
    jobs.put("a" * 46, status=status)
    jobs.shards[KEY] = [Shard(index=i, message="y" * 200) for i in range(3)]
    for address in ("", "/#/team-a/a-job", "/docs"):
        page = open_page(local_url + address, viewport={"width": width, "height": 700})
        expect(page.get_by_role("heading", level=2)).to_be_visible()
        expect(page.get_by_role("table").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_in_light_and_in_dark(open_page, local_url, jobs, scheme):
    for phase in ("Running", "Failed", "Succeeded", "Pending"):
        jobs.put(phase.lower(), status=_status(40, phase=phase))
    page = open_page(local_url, color_scheme=scheme)
    expect(page.get_by_role("row")).to_have_count(5)
    lowest = page.evaluate(_LOWEST_CONTRAST)
    assert lowest >= 4.5, "https://www.w3.org/TR/WCAG22/#contrast-minimum"
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") == (scheme == "light")


def test_the_reference_of_the_api_is_drawn_from_here(open_page, local_url):
    page = open_page(f"{local_url}/docs")
    heading = "GET /v1/namespaces/{namespace}/extractionjobs/{name}/stream"
    expect(page.get_by_role("heading", name=heading)).to_be_visible()


def test_a_picture_for_the_documentation(open_page, local_url, jobs, tmp_path):
    """DRILLCORE_SCREENSHOT=1 replaces the picture in docs/; else only that it can be taken is tested."""
    jobs.put("llama-eagle3", status=_status(63), spec={"model": {"uri": "hf://meta-llama/Llama-3.1-8B-Instruct"}})
    key = ("team-a", "llama-eagle3")
    jobs.samples[key] = [
        ThroughputSample(time_seconds=30.0 * i, rows_done=70 * i, tokens=35_000 * i + 4_000 * (i * i % 7), bytes=i)
        for i in range(60)
    ]
    jobs.shards[key] = [
        Shard(
            index=0, phase=ShardPhase.COMMITTED, rows_total=5000, rows_done=5000, rows_quarantined=7, bytes=47 * 2**30
        ),
        Shard(index=1, phase=ShardPhase.RUNNING, rows_total=5000, rows_done=1300, bytes=16 * 2**30),
    ]
    page = open_page(f"{local_url}/#/team-a/llama-eagle3", viewport={"width": 1000, "height": 900})
    expect(page.get_by_role("table", name="Shards")).to_be_visible()
    target = SCREENSHOT if os.environ.get("DRILLCORE_SCREENSHOT") else tmp_path / "page.png"
    page.screenshot(path=target)
    assert target.stat().st_size > 10_000


_LOWEST_CONTRAST = """() => {
  const channel = (value) => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const luminance = (color) => {
    const [r, g, b] = color.match(/[0-9.]+/g).slice(0, 3).map((value) => channel(Number(value)));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const color = getComputedStyle(node).backgroundColor;
      if (color !== "rgba(0, 0, 0, 0)") return color;
    }
  };
  const texts = [...document.querySelectorAll("h1 a, h2, th, td, a, button, label, .phase")]
    .filter((node) => node.textContent.trim());
  return Math.min(...texts.map((node) => {
    const [a, b] = [luminance(getComputedStyle(node).color), luminance(ground(node))].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  }));
}"""
