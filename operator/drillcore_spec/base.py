"""What all objects of the job resource have in common."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_serializer, model_validator
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import InitErrorDetails, PydanticCustomError
from pydantic_core.core_schema import SerializerFunctionWrapHandler

from drillcore_spec.rules import Rule

RULE_ERROR = "rule"
"""pydantic's error type for a broken `Rule`; its message is ready for the user."""

NULLABLE: dict[str, Any] = {"nullable": True}
"""`json_schema_extra` of a field in which null is a value of its own and not the same as leaving it out."""


class SpecModel(BaseModel):
    """An object of the job resource: camelCase in YAML and JSON, unknown keys refused, immutable.

    As at the API server, null is the same as leaving the field out, but for `NULLABLE` fields.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        protected_namespaces=(),
    )

    rules: ClassVar[tuple[Rule, ...]] = ()
    """Conditions between this object's fields."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        keep = {key for key, info in cls.fields_by_key().items() if is_nullable(info)}
        keep |= {name for name, info in cls.model_fields.items() if is_nullable(info)}
        return {key: value for key, value in data.items() if value is not None or key in keep}

    @model_validator(mode="after")
    def _hold_rules(self) -> Self:
        broken = [rule for rule in self.rules if not rule.holds(self)]
        if broken:
            raise ValidationError.from_exception_data(type(self).__name__, [_details(r, self) for r in broken])
        return self

    @model_serializer(mode="wrap")
    def _leave_out_absent(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = type(self).fields_by_key() | type(self).model_fields
        data: dict[str, Any] = serialize(self)
        return {k: v for k, v in data.items() if v is not None or (k in fields and is_nullable(fields[k]))}

    @classmethod
    def fields_by_key(cls) -> dict[str, FieldInfo]:
        """The fields by their key in YAML."""
        return {info.alias or name: info for name, info in cls.model_fields.items()}


def is_nullable(info: FieldInfo) -> bool:
    """Whether null is a value of this field."""
    extra = info.json_schema_extra
    return isinstance(extra, dict) and bool(extra.get("nullable"))


def _details(rule: Rule, value: SpecModel) -> InitErrorDetails:
    text = rule.message_for(value)
    # The text goes in as a value: braces in it are not placeholders.
    error = PydanticCustomError(RULE_ERROR, "{text}", {"text": text})
    return InitErrorDetails(type=error, loc=rule.field, input=value)
