"""How many tokens and bytes a job will write: from dataset, tokenizer and config, without weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from itertools import chain

from drillcore.part_schema import PartSchema
from drillcore.records import QuarantineEntry
from drillcore_server.data.feed import prepared_batches
from drillcore_server.data.rows import PreparedRow
from drillcore_server.engine.device import choose_device, compute_dtype, store_dtype
from drillcore_server.ring.job_file import JobFile
from drillcore_server.shard.preparation import Preparation, manifest_of, prepare
from drillcore_server.shard.source import request_of
from drillcore_server.volumes import Volumes
from drillcore_spec import ExtractionJobSpec
from drillcore_spec.quantity import quantity_bytes


@dataclass(frozen=True)
class Estimate:
    """What a job will write. With generation, tokens, states and bytes are upper bounds."""

    rows_in: int = 0
    rows_out: int = 0
    rows_quarantined: int = 0
    tokens: int = 0
    states: int = 0
    bytes: int = 0
    """Of all parts, and of the rows' own files with layout PerSample."""
    rows_unsupervised: int = 0
    """Rows out with a loss mask in which no token is supervised."""
    tokens_dropped: int = 0
    """Tokens at the ends of shards that fill no context."""

    def __add__(self, other: Estimate) -> Estimate:
        mine, theirs = asdict(self), asdict(other)
        return Estimate(**{name: mine[name] + theirs[name] for name in mine})


def estimate_job(spec: ExtractionJobSpec, volumes: Volumes) -> Estimate:
    """Reads and tokenises the whole dataset and adds up what each row will take.

    Raises:
        ShardError: as a run would before it loads weights.
    """
    preparation = prepare(spec, volumes)
    device = choose_device(spec.server.resources.gpus, local=True)
    checkpoint = preparation.model.dtype
    dtype = compute_dtype(spec.model.dtype, checkpoint, device)
    schema = PartSchema.of(manifest_of(preparation, dtype, store_dtype(spec.extraction.store_dtype, checkpoint)))
    total = Estimate()
    for shard in range(spec.shards.count):
        rows = preparation.shard_rows(shard)
        batches = prepared_batches(preparation.dataset, preparation.preparer, rows, shard=shard)
        total += _estimate_shard(preparation, schema, chain.from_iterable(batches))
    counts = preparation.preparer.counts
    return replace(total, rows_unsupervised=counts.unsupervised_rows, tokens_dropped=counts.dropped_tokens)


def _estimate_shard(
    preparation: Preparation, schema: PartSchema, rows: Iterable[PreparedRow | QuarantineEntry]
) -> Estimate:
    """One shard: what its rows take, and one header block for each part that they fill."""
    samples = quarantined = tokens = states = id_bytes = 0
    has_mask = False
    for row in rows:
        request = row if isinstance(row, QuarantineEntry) else request_of(preparation, row)
        if isinstance(request, QuarantineEntry):
            quarantined += 1
            continue
        samples += 1
        tokens += request.num_slots
        states += request.max_states
        id_bytes += len((request.id or "").encode("utf-8", "surrogatepass"))
        has_mask |= request.loss_mask is not None
    size_bytes = 0
    if samples:
        size_bytes = schema.part_bytes(
            samples=samples, tokens=tokens, states=states, id_bytes=id_bytes, loss_mask=has_mask
        )
        part_bytes = quantity_bytes(preparation.spec.output.part_size)
        num_more_parts = size_bytes // part_bytes
        if preparation.generates:
            # An upper bound: a writer that is busy leaves a sample to another one, which makes a part of its own.
            num_more_parts += JobFile.num_writers - 1
        # A part has at least one row, however small output.partSize is.
        size_bytes += min(num_more_parts, samples - 1) * schema.header_block_bytes
    return Estimate(samples + quarantined, samples, quarantined, tokens, states, size_bytes)
