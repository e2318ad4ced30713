"""What all lines of an export have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from roofwatch.db.schema.table import Base

Words = Annotated[str, Field(max_length=10_000)]
ProjectName = Annotated[str, Field(max_length=220, pattern=r"^[\w.][\w./-]*(\?quarantine)?$")]
Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]


class Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def columns_of(row: Base, *left_out: str) -> Mapping[str, Any]:
    """All values of a row but some: a column that its line does not know yet is an error, not left out."""
    return {name: getattr(row, name) for name in row.__table__.columns.keys() if name not in left_out}  # noqa: SIM118 -- a collection of columns
