"""`drillcore inspect`: the picture of an output, in a terminal and as a page."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from drillcore import Counts, InspectReport
from drillcore.counts import LayerStats
from drillcore.dtypes import StoreDType
from drillcore.inspection import ShardReport, TokenHistogram
from drillcore.manifest import Manifest, ModelIdentity
from drillcore_server.cli import main
from drillcore_server.cli.inspect_page import page_of
from drillcore_server.cli.inspect_picture import Picture
from drillcore_server.cli.inspect_text import text_of

HOSTILE = '<script>alert("a")</script>\x1b[2J\u202e\ud800&amp;'


@pytest.fixture
def report():
    manifest = Manifest(
        engine_version="0",
        model=ModelIdentity("pvc://models/m", None, "", "", ""),
        dataset={"uri": "pvc://datasets/d.jsonl"},
        layers=(2, 16),
        final_norm=True,
        hidden_size=64,
        positions="All",
        dtype=StoreDType.BF16,
        store_dtype=StoreDType.BF16,
        generation={"maxTokens": 8, "temperature": 0.5},
        max_model_len=512,
        shard_count=3,
        special_token_ids=(),
    )
    counts = Counts(rows_in=1005, rows_out=1003, rows_quarantined=2, tokens=9000, states=9000, bytes=3 << 20)
    return InspectReport(
        path=Path("out/states"),
        manifest=manifest,
        complete=False,
        shards=(ShardReport(0, True, 1, counts), ShardReport(2, False, 1, Counts())),
        counts=counts,
        layer_stats={"2": LayerStats(0.00125, 1.0), "16": LayerStats(5000.0, 123456.0), "finalNorm": LayerStats(0, 0)},
        tokens_per_row=TokenHistogram.of(np.array([8, 9, 10, 10, 12, 40])),
        quarantine={"BadColumn": 2},
    )


def test_the_terminal_shows_counts_lengths_and_norms_in_80_columns(report):
    lines = text_of(Picture.of(report)).splitlines()

    assert max(map(len, lines)) <= 80
    shown = [" ".join(line.split()) for line in lines]
    for expected in (
        "output out/states (not complete)",
        "columns 2, 16, finalNorm of 64 BF16",
        "generation maxTokens 8, temperature 0.5",
        "shards 1 of 3 committed",
        "rows 1,005 rows in, 1,003 out, 2 quarantined",
        "quarantine 2 BadColumn",
        "tokens per row: median 10, longest 40",
        "8 to 15 5 " + "#" * 32,
        "16 to 31 0",
        "32 to 63 1 " + "#" * 6,
        "2 0.00125 1",
        "16 5000 1.2346e+05 " + "#" * 32,
    ):
        assert expected in shown


def test_an_output_without_rows_has_no_diagrams(report):
    empty = replace(report, tokens_per_row=TokenHistogram.of(np.array([], np.int64)), layer_stats={})

    assert Picture.of(empty).diagrams == ()
    assert "tokens per row" not in text_of(Picture.of(empty))


class _Elements(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self):
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


def elements_of(page):
    elements = _Elements()
    elements.feed(page)
    return elements


def test_the_page_needs_no_other_file_and_suits_light_and_dark_screens(report):
    page = page_of(Picture.of(report))

    elements = elements_of(page)
    assert set(elements.tags) == {"html", "meta", "title", "style", "h1", "h2", "table", "tr", "th", "td", "div"}
    assert not {"src", "href", "action", "srcset"} & {name for name, _ in elements.attributes}
    assert "//" not in page.replace("pvc://", "")
    assert "url(" not in page
    assert "light-dark(" in page
    widths = [value for name, value in elements.attributes if name == "style"]
    assert widths == ["width: 100.0%", "width: 0.0%", "width: 20.0%", "width: 0.0%", "width: 100.0%", "width: 0.0%"]


def test_what_files_and_people_named_is_text_on_the_page_and_in_the_terminal(report):
    manifest = replace(
        report.manifest,
        model=replace(report.manifest.model, uri=HOSTILE, revision=HOSTILE),
        dataset={"uri": HOSTILE},
        positions=HOSTILE,
        generation={HOSTILE: HOSTILE},
    )
    hostile = replace(
        report,
        path=Path(HOSTILE),
        manifest=manifest,
        layer_stats={HOSTILE: LayerStats(1, 1)},
        quarantine={HOSTILE: 1},
    )

    picture = Picture.of(hostile)

    page, text = page_of(picture), text_of(picture)
    assert elements_of(page).tags == elements_of(page_of(Picture.of(report))).tags[: len(elements_of(page).tags)]
    assert elements_of(page).text.count('<script>alert("a")</script>\\x1b[2J\\u202e\\ud800&amp;') >= 8
    for shown in (page, text):
        assert shown.replace("\n", "").isprintable()
        shown.encode()


@pytest.mark.e2e
def test_a_job_is_seen_on_a_page_and_a_page_that_cannot_be_written_is_an_error(workplace, capsys):
    assert workplace.run_json()["code"] == 0
    page = workplace.folder / "page.html"

    assert main(["inspect", str(workplace.output), "--html", str(page)]) == 0
    shown = capsys.readouterr().out
    assert main(["inspect", str(workplace.output), "--json"]) == 0
    tokens = json.loads(capsys.readouterr().out)["counts"]["tokens"]
    refused = main(["inspect", str(workplace.output), "--html", str(workplace.folder / "none" / "page.html")])

    assert "1 UnreadableRow" in shown
    assert f"{tokens:,}; {tokens:,} states" in shown
    assert f"{tokens:,}; {tokens:,} states" in page.read_text()
    assert refused == 73
    assert "`--html` must name a file that can be written" in capsys.readouterr().err
