"""What all specs of a run are made of: their base, and the kinds of values."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from memcalc.units import dtype_name

MAX_COUNT = 2**40
"""No size that a run asks for is larger: beyond it products of sizes leave 64-bit integers."""

MAX_CARDS = 2**20
"""No job has more; the largest that are known of have a fifth of it."""


def _dtype(value: Any) -> Any:
    return dtype_name(value) if isinstance(value, str) else value


Count = Annotated[int, Field(ge=1, le=MAX_COUNT, strict=True)]
Cards = Annotated[int, Field(ge=1, le=MAX_CARDS, strict=True)]
IS_DTYPE = BeforeValidator(_dtype)
Dtype = Annotated[str, IS_DTYPE]
PATH: dict[str, Any] = {"path": True}
"""Marks a key whose text may be a path: in a run file, one that is not found from the working directory is looked for beside the file."""
Share = Annotated[float, Field(gt=0, le=1)]


class Spec(BaseModel):
    """Base of everything that a user writes: immutable, and unknown keys are errors.

    pydantic builds its validator when the first value is validated, not at import: `memcalc.specs.read`, which checks every key
    itself, does without it, and that is an eighth of the time of a cold `memcalc estimate`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), defer_build=True)

    def as_dict(self) -> dict[str, Any]:
        """What is set or has a default, nested, without nulls: `model_dump(exclude_none=True)` for keys that hold plain values."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: value.as_dict() if isinstance(value, Spec) else value for name, value in values.items() if value is not None}
