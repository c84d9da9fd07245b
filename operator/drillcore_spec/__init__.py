"""The ExtractionJob resource and its vocabulary: pydantic, PyYAML and the standard library only."""

from drillcore_spec.errors import Problem, Source, SpecError
from drillcore_spec.features import refuse_unbuilt
from drillcore_spec.job import ExtractionJob, ExtractionJobSpec
from drillcore_spec.load import load_job, parse_spec, read_job
from drillcore_spec.quantity import quantity_bytes

__all__ = [
    "ExtractionJob",
    "ExtractionJobSpec",
    "Problem",
    "Source",
    "SpecError",
    "load_job",
    "parse_spec",
    "quantity_bytes",
    "read_job",
    "refuse_unbuilt",
]
