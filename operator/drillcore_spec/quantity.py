"""Kubernetes quantities: `512Mi`, `1.5Gi`, `500m`.

The forms accepted are a subset of Kubernetes' own (no exponents, no zero), so that a pattern alone decides
and the API server's CEL function `quantity()` never fails on them.
Source: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

from drillcore_spec.errors import Problem, SpecError

BYTES_PATTERN = r"^[1-9][0-9]{0,17}(\.[0-9]{1,3})?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
CPU_PATTERN = r"^([1-9][0-9]{0,8}m|[1-9][0-9]{0,5}(\.[0-9]{1,3})?|0\.[0-9]{0,2}[1-9])$"

BYTES_FORM = 'a number of bytes in quotes, such as "512Mi", "1.5Gi" or "20Ti"'
CPU_FORM = 'a number of CPUs in quotes, such as "4", "0.5" or "500m"'

_FACTORS = {"": 1}
_FACTORS |= {suffix: 1000 ** (power + 1) for power, suffix in enumerate("kMGTP")}
_FACTORS |= {f"{suffix}i": 1024 ** (power + 1) for power, suffix in enumerate("KMGTP")}


def quantity_bytes(quantity: str) -> int:
    """The number of bytes of a quantity, fractions rounded up as Kubernetes does.

    Raises:
        SpecError: when the text is not of the form of `BYTES_PATTERN`.
    """
    if not re.fullmatch(BYTES_PATTERN, quantity, re.ASCII) or quantity.endswith("\n"):
        raise SpecError([Problem(f"expected {BYTES_FORM}; got {quantity!r}")])
    number = quantity.rstrip("kKMGTPi")
    return math.ceil(Fraction(number) * _FACTORS[quantity[len(number) :]])


def format_bytes(size_bytes: int) -> str:
    """A quantity of exactly `size_bytes`, with the largest binary suffix that divides it.

    Raises:
        SpecError: `size_bytes` is less than 1.
    """
    if size_bytes < 1:
        raise SpecError([Problem(f"expected at least 1 byte; got {size_bytes}")])
    fitting = ((f, s) for s, f in _FACTORS.items() if (s == "" or s.endswith("i")) and size_bytes % f == 0)
    factor, suffix = max(fitting)
    return f"{size_bytes // factor}{suffix}"
