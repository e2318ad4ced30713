"""A case as a record knows it: what was measured, and what it costs by its model."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from roofwatch.collector.record.part import Count, Name, Part


class CaseRecord(Part):
    case_id: Name
    kernel: Name
    family: Name = "other"
    shape: dict[str, Count | Annotated[str, Field(min_length=1, max_length=100)]]
    """Lengths by dimension; a word where cases differ in kind, for example `routing: zipf`."""
    dtype: Name
    direction: Literal["fwd", "bwd"]
    flop_count: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    memory_bytes: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    bus_bytes: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Of a collective: bytes that each link must carry, the size times the field's factor; None for other kernels."""
    tags: tuple[Annotated[str, Field(min_length=1, max_length=100)], ...] = ()
    """Words to select it by, such as `quick` or `70b`."""
