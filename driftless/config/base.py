"""What every part of sync.yaml has in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
from pydantic.fields import FieldInfo


class Model(BaseModel):
    """A part of sync.yaml. Unknown fields are refused; a mistake's message never shows the value.

    A field's first example is YAML that stands for itself: in docs/configuration.md, and in messages.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_number(cls, value: object, info: ValidationInfo) -> object:
        """YAML's true is 1 to pydantic."""
        if isinstance(value, bool) and cls.model_fields[info.field_name or ""].annotation in (int, float, int | None):
            raise ValueError(f"`{str(value).lower()}` is no number")
        return value


def written_fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a part, by the names that they have in the file."""
    return {field.alias or name: field for name, field in model.model_fields.items()}
