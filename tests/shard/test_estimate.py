"""What a job of each kind writes: as much as was estimated, and in proportion to the states that it keeps."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from drillcore.part_schema import PartSchema
from drillcore.part_writer import PartWriter
from drillcore.records import QuarantineEntry
from drillcore_server.connector.list_sink import ListSink
from drillcore_server.engine import Engine, EngineConfig, state_shape
from drillcore_server.estimate import Estimate, estimate_job
from drillcore_server.models.loader import load_decoder
from drillcore_server.ring.job_file import JobFile
from drillcore_server.shard.preparation import manifest_of, prepare
from drillcore_server.shard.source import open_requests
from drillcore_server.volumes import Volumes
from drillcore_spec import parse_spec

KINDS = {
    "All": {},
    "Last": {},
    "Mean": {},
    "LossMask": {},
    "Window": {"window": {"start": 4, "end": 20}},
    "Stride": {"stride": {"step": 8, "offset": 2}},
}
NUM_ROWS = 40
GENERATED = {"maxTokens": 6}
HEADER_BLOCK_BYTES = 4096


@pytest.fixture(scope="module")
def write_job(tiny_model_folder):
    """`write_job(spec, folder)`: runs a job's shard in this process; counts, and the size of the part that it makes."""
    import torch

    def write(spec, folder) -> Estimate:
        preparation = prepare(spec, Volumes(folder))
        decoder = load_decoder(
            preparation.folder.path,
            preparation.model,
            device="cpu",
            dtype=torch.float32,
            num_layers=preparation.plan.num_layers_to_run(generates=preparation.generates),
            lm_head=preparation.generates,
            final_norm=preparation.generates,
        )
        sink = ListSink(state_shape(decoder, preparation.plan))
        limits = EngineConfig(max_model_len=512, num_blocks=64, max_tokens=spec.generation.max_tokens)
        with open_requests(preparation, 0) as requests:
            Engine(decoder, preparation.plan, limits, sink).run(requests)
        schema = PartSchema.of(manifest_of(preparation, torch.float32, torch.float32))
        writer = PartWriter(folder / "part.safetensors", schema)
        for sample in sink.samples:
            writer.append(sample.hidden_states.view(torch.uint8).numpy().reshape(-1).data)
            writer.end_sample(sample.end)
        part = writer.close()
        quarantined = len(sink.quarantined)
        return Estimate(
            rows_in=part.num_rows + quarantined,
            rows_out=part.num_rows,
            rows_quarantined=quarantined,
            tokens=part.tokens,
            states=part.states,
            bytes=part.bytes,
        )

    return write


@pytest.fixture
def job_of(changed, tmp_path):
    """`job_of("Mean", generation)`: a job over 40 rows of 1 to 80 tokens, every third of them supervised."""
    rng = np.random.default_rng(0)
    rows = []
    for row in range(NUM_ROWS):
        ids = rng.integers(0, 256, 1 + 2 * row).tolist()
        rows.append({"id": f"row-{row}", "ids": ids, "mask": [int(p % 3 == 1) for p in range(len(ids))]})
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def make(kind, generation=None):
        spec = changed("extraction", {"layers": [0, 2], "positions": kind, **KINDS[kind]})
        spec["dataset"]["columns"] = {"inputIds": "ids", "id": "id", "lossMask": "mask"}
        spec["generation"] = generation or {}
        return parse_spec(json.dumps(spec))

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_writes_what_was_estimated(job_of, write_job, tmp_path, kind):
    spec = job_of(kind)

    estimated, written = estimate_job(spec, Volumes(tmp_path)), write_job(spec, tmp_path)

    assert replace(estimated, bytes=0, rows_unsupervised=0) == replace(written, bytes=0)
    assert written.bytes == pytest.approx(estimated.bytes, rel=0.01)
    assert written.rows_quarantined == {"LossMask": 1, "Window": 2, "Stride": 1}.get(kind, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_with_generation_the_estimate_is_an_upper_bound(job_of, write_job, tmp_path, kind):
    spec = job_of(kind, GENERATED)

    estimated, written = estimate_job(spec, Volumes(tmp_path)), write_job(spec, tmp_path)

    assert estimated.rows_in == written.rows_in
    for name in ("rows_out", "tokens", "states", "bytes"):
        assert getattr(written, name) <= getattr(estimated, name)
        # One writer made one part here; in a job each of the others may make one more.
        headers = (JobFile.num_writers - 1) * HEADER_BLOCK_BYTES if name == "bytes" else 0
        assert getattr(written, name) >= 0.7 * (getattr(estimated, name) - headers)


def test_bytes_are_in_proportion_to_the_states(job_of, write_job, tmp_path):
    written = {}
    for kind in KINDS:
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "rows.jsonl").symlink_to(tmp_path / "rows.jsonl")
        written[kind] = write_job(job_of(kind), tmp_path / kind)

    state_bytes = 2 * 64 * 4
    for kind, other in written.items():
        saved_states = written["All"].states - other.states
        saved_bytes = written["All"].bytes - other.bytes
        assert saved_bytes == pytest.approx(saved_states * state_bytes, rel=0.03, abs=5000), kind


def test_a_row_without_a_selected_token_is_not_computed(job_of, tmp_path):
    with open_requests(prepare(job_of("Window"), Volumes(tmp_path)), 0) as requests:
        items = list(requests)

    entries = [item for item in items if isinstance(item, QuarantineEntry)]
    assert [(e.row, e.line, e.id, e.reason) for e in entries] == [
        (0, 1, "row-0", "NothingSelected"),
        (1, 2, "row-1", "NothingSelected"),
    ]
    assert entries[1].message == "positions Window select none of 3 tokens"
