"""What the full check of a case says, as it travels from the worker and as `roofwatch check --json` prints it."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, PlainSerializer

from roofwatch.collector.record.machine import Outcome


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _json_number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


AnyNumber = Annotated[float, PlainSerializer(_json_number, when_used="json")]
"""JSON has no NaN and no infinity: there they are the words `nan`, `inf` and `-inf`."""


class Arrangement(StrEnum):
    """How a tensor may lie in memory."""

    ROW_STRIDED = "row_strided"
    """A slice of a wider buffer: rows further apart than they are long, and none of them aligned."""
    TRANSPOSED = "transposed"
    """Its last two dims swapped in memory."""


class Layout(_Part):
    """One tensor of a case, laid out otherwise."""

    tensor: str
    """Name of the input; `upstream` for the gradients that the backward pass is given."""
    arrangement: Arrangement


class WrongElement(_Part):
    index: tuple[int, ...]
    expected: AnyNumber
    got: AnyNumber


class TensorReport(_Part):
    """One output or gradient against the reference."""

    tensor: str
    """`out`, or `grad_<input>`."""
    dtype: str
    shape: tuple[int, ...]
    passed: bool
    rmse_ratio: float
    """RMS of the error / RMS of the reference, over the elements that are finite on both sides, as all errors are."""
    rmse_limit: float
    baseline_rmse_ratio: float | None
    """Of the eager implementation; None where there is nothing to hold against."""
    elementwise: float
    """Largest error of an element, relative to it and the RMS."""
    elementwise_limit: float
    baseline_elementwise: float | None
    max_abs_error: float
    unlike_count: int
    """Elements that are NaN or infinite here or in the reference, and not the same in both."""
    message: str | None = None
    wrong_count: int = 0
    """Elements beyond the limit, and those that are unlike."""
    where: str | None = None
    """Where the wrong elements are: a tile, a tail, a triangle, every n-th, …"""
    values: str | None = None
    """What is told by the values that came instead."""
    worst: tuple[WrongElement, ...] = ()


class CheckReport(_Part):
    """One case of one implementation, in one layout."""

    case_id: str
    implementation: str
    executor: Literal["device", "interpreter"]
    """On the device, or in Triton's interpreter."""
    layout: Layout | None = None
    """The tensor that lay otherwise in memory; None for the case as it is."""
    outcome: Outcome
    """Of a layout, `unsupported` is a refusal, which is as good as a right result."""
    message: str | None = None
    baseline_missing: str | None = None
    """Why the caps decided alone; None if there was an eager baseline."""
    tensors: tuple[TensorReport, ...] = ()

    @property
    def has_failed(self) -> bool:
        return self.outcome not in {Outcome.OK, Outcome.UNSUPPORTED}
