"""Which claims a job mounts, and what their access modes mean for its pods."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence

from drillcore_spec import names
from drillcore_spec.job import ExtractionJobSpec
from drillcore_spec.uris import claim_name

_VOLUME_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_OWN_VOLUMES = frozenset(
    {names.VOLUME_RING, names.VOLUME_OUTPUT, names.VOLUME_TMP, names.VOLUME_SHM, names.VOLUME_TOKEN}
)
_MANY_NODES = frozenset({"ReadWriteMany", "ReadOnlyMany"})


def source_claims(spec: ExtractionJobSpec) -> tuple[str, ...]:
    """Claims that are read as /volumes/CLAIM, each once, in the order of the spec."""
    uris = (spec.model.uri, spec.dataset.uri, spec.dataset.chat_template or "")
    claims = (claim_name(uri) for uri in uris)
    return tuple(dict.fromkeys(claim for claim in claims if claim is not None))


def all_claims(spec: ExtractionJobSpec) -> tuple[str, ...]:
    """Every claim of the job, the output's first."""
    cache = (spec.model.cache_claim_name,) if spec.model.cache_claim_name else ()
    return tuple(dict.fromkeys((spec.output.claim_name, *source_claims(spec), *cache)))


def volume_of_claim(spec: ExtractionJobSpec, claim: str) -> str:
    """Name of the claim's volume in the pod: the claim's own where it can be one, else made from its hash."""
    if claim == spec.output.claim_name:
        return names.VOLUME_OUTPUT
    if _VOLUME_NAME.fullmatch(claim) and claim not in _OWN_VOLUMES:
        return claim
    return f"claim-{hashlib.sha256(claim.encode()).hexdigest()[:8]}"


def needs_one_node(spec: ExtractionJobSpec, access_modes: Mapping[str, Sequence[str]]) -> bool:
    """Whether a claim of the job, by its access modes, can be mounted on one node only while several shards
    may run at once.
    """
    single = any(_MANY_NODES.isdisjoint(modes) for modes in access_modes.values())
    return single and spec.shards.count > 1
