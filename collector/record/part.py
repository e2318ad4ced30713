"""The base of every part of a record, and its kinds of values."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(min_length=1, max_length=500)]
Message = Annotated[str, Field(max_length=4_000)]
Sha = Annotated[str, Field(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")]
PositiveNs = Annotated[float, Field(gt=0, allow_inf_nan=False)]
# what Postgres and JSON readers elsewhere can hold
_MAX_INTEGER = 2**63 - 1
Count = Annotated[int, Field(ge=0, le=_MAX_INTEGER)]
Integer = Annotated[int, Field(ge=-_MAX_INTEGER, le=_MAX_INTEGER)]


class Outcome(StrEnum):
    """How a measurement ended. Only `ok` carries samples; a failure is never a number."""

    OK = "ok"
    INCORRECT = "incorrect"
    COMPILE_ERROR = "compile_error"
    OUT_OF_MEMORY = "out_of_memory"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    UNSUPPORTED = "unsupported"
    INVALID = "invalid"
    """Faster than the roof allows."""


class Part(BaseModel):
    # fields that a newer minor version added stay in the file and count in its content hash
    model_config = ConfigDict(frozen=True, extra="allow")
