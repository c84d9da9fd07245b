"""The three kinds of URI in a job: hf:// (model hub), file:// (the machine or image) and pvc:// (a claim)."""

from __future__ import annotations

from pydantic.alias_generators import to_camel

from drillcore_spec.rules import Rule

HUB_SCHEME = "hf://"
FILE_SCHEME = "file://"
CLAIM_SCHEME = "pvc://"


def is_hub(uri: str) -> bool:
    """Whether the URI names something on a model hub."""
    return uri.startswith(HUB_SCHEME)


def claim_name(uri: str) -> str | None:
    """The claim of a pvc:// URI; None for the other kinds."""
    return uri.removeprefix(CLAIM_SCHEME).partition("/")[0] if uri.startswith(CLAIM_SCHEME) else None


def no_parent_folder(field: str) -> Rule:
    """The rule that the URI or path in `field` (a python name) never climbs out of its folder."""
    key = to_camel(field)
    return Rule(
        cel=f"!has(self.{key}) || !self.{key}.split('/').exists(part, part == '..')",
        holds=lambda self: ".." not in (getattr(self, field) or "").split("/"),
        expected=f"{key} without `..`",
        field=(key,),
    )
