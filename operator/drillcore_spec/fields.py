"""The tree of fields of the models: for suggestions in errors and for the field reference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin

from pydantic.fields import FieldInfo

from drillcore_spec.base import SpecModel


@dataclass(frozen=True)
class FieldEntry:
    """A field, and where it stands."""

    path: str
    """Path from the walk's root, such as spec.extraction.layers; `[]` after a list."""
    info: FieldInfo
    """pydantic's record of the field."""
    model: type[SpecModel] | None
    """The model of the field's value or items; None for scalars and maps."""


def walk(model: type[SpecModel], prefix: str = "") -> Iterator[FieldEntry]:
    """All fields under `model`, each before those inside it."""
    for key, info in model.fields_by_key().items():
        inner, is_list = inner_model(info.annotation)
        path = f"{prefix}{key}"
        yield FieldEntry(path, info, inner)
        if inner is not None:
            yield from walk(inner, f"{path}[]." if is_list else f"{path}.")


def model_at(root: type[SpecModel], location: tuple[str | int, ...]) -> type[SpecModel] | None:
    """The model of the object at `location`; None if no object of ours stands there."""
    model: type[SpecModel] | None = root
    for part in location:
        if model is None or isinstance(part, int):
            continue
        info = model.fields_by_key().get(part)
        model = inner_model(info.annotation)[0] if info else None
    return model


def inner_model(annotation: Any, is_list: bool = False) -> tuple[type[SpecModel] | None, bool]:
    """The model in a field's type (None for scalars and maps), and whether it stands in a list."""
    if isinstance(annotation, type) and issubclass(annotation, SpecModel):
        return annotation, is_list
    origin = get_origin(annotation)
    if origin is dict:
        return None, False
    inner = get_args(annotation)[:1] if origin is Annotated else get_args(annotation)
    found = (inner_model(part, is_list or origin is tuple) for part in inner)
    return next((entry for entry in found if entry[0] is not None), (None, is_list))
