"""Result of the check of a case, as sent by a worker and printed by `roofwatch check --json`."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, PlainSerializer

from roofwatch.model.case_key import CaseKey
from roofwatch.model.machine import Outcome
from roofwatch.model.memory_fault import MemoryFault
from roofwatch.model.proofs import KernelPackage, OperatorCost, OverflowProof
from roofwatch.model.regime import Regime
from roofwatch.model.results import Accuracy, TensorError

REFERENCE_FAILED = "the reference failed"
"""How the message of a case begins whose reference raised an exception."""
MAY_REFUSE = "may_refuse"
"""Tag of a guessed size, which reference and implementations may refuse."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def _json_number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return str(value)


AnyNumber = Annotated[float, PlainSerializer(_json_number, when_used="json")]
"""In JSON, which has no NaN and infinity, `nan`, `inf` and `-inf` are strings."""


class Arrangement(StrEnum):
    ROW_STRIDED = "row_strided"
    """A slice of a wider buffer: rows are not contiguous and not aligned."""
    TRANSPOSED = "transposed"
    """The last two dims are swapped in memory."""
    EXPANDED = "expanded"
    """Stride 0, as the gradient that `out.sum()` passes back; an input repeats one slice."""


class Layout(_Part):
    """One tensor of a case in another memory layout."""

    tensor: str
    """Name of the input, or `upstream` for the incoming gradients of the backward pass."""
    arrangement: Arrangement


class WrongElement(_Part):
    index: tuple[int, ...]
    expected: AnyNumber
    got: AnyNumber


class Errors(_Part):
    """Relative errors of a tensor, or their limits."""

    elementwise: float
    """Largest `|out - ref| / (|ref| + rms(ref))`."""
    rmse_ratio: float
    """RMS of the error / RMS of the reference."""


class TensorReport(_Part):
    """One output or gradient compared with the reference."""

    tensor: str
    """`out`, or `grad_<input>`."""
    dtype: str
    shape: tuple[int, ...]
    passed: bool
    errors: Errors
    """Over the elements that are finite on both sides."""
    limits: Errors
    baseline: Errors | None
    """Errors of the torch implementation; None without a baseline."""
    max_abs_error: float
    nonfinite_count: int
    """Elements that are NaN or infinite on one side and not the same on the other."""
    message: str | None = None
    wrong_count: int = 0
    """Elements beyond the limit, and non-finite ones."""
    where: str | None = None
    """Pattern of the wrong elements: a tile, a tail, a triangle, every n-th, …"""
    values: str | None = None
    """What the wrong values have in common."""
    worst: tuple[WrongElement, ...] = ()

    @property
    def error(self) -> TensorError:
        """The part that a record stores."""
        baseline_rmse_ratio = None
        if self.baseline is not None:
            baseline_rmse_ratio = self.baseline.rmse_ratio
        return TensorError(
            tensor=self.tensor,
            max_abs_error=self.max_abs_error,
            rmse_ratio=self.errors.rmse_ratio,
            baseline_rmse_ratio=baseline_rmse_ratio,
            passed=self.passed,
        )


class CheckReport(_Part):
    """One case of one implementation, in one layout."""

    case_id: str
    implementation: str
    executor: Literal["device", "interpreter"]
    """`interpreter` is Triton's."""
    layout: Layout | None = None
    """None for the case as declared."""
    regime: Regime | None = None
    """None for the values that the case declares."""
    outcome: Outcome
    """With a layout, `unsupported` means that the implementation refuses it, which passes."""
    message: str | None = None
    traceback: str | None = None
    """Of the exception that the implementation raised."""
    baseline_missing: str | None = None
    """Why only the caps limit the error; None with a torch baseline."""
    tensors: tuple[TensorReport, ...] = ()
    faults: tuple[MemoryFault, ...] = ()
    """Accesses out of bounds and races, found by the interpreter; the first is in the message."""
    launch_count: int = 0
    """Launches of Triton kernels that the interpreter ran, of an implementation that ended. With
    the outcome `unsupported`, there was no reference to compare its results with.
    """
    unknown_pointer_count: int = 0
    """Accesses through pointers whose operand is not known, because they were integers."""
    interpreter_defect: str | None = None
    """Why nothing that the interpreter computes here can be judged."""

    @property
    def has_failed_reference(self) -> bool:
        """Nothing is known about the implementation."""
        return (self.message or "").startswith(REFERENCE_FAILED)

    @property
    def case_key(self) -> CaseKey:
        return self.case_id, self.implementation

    def accuracy(self, case_id: str, regimes: Iterable[TensorError] = ()) -> Accuracy:
        """The part that a record stores, for the case or the one that it stands in for."""
        return Accuracy(
            case_id=case_id,
            implementation=self.implementation,
            executor=self.executor,
            outcome=self.outcome,
            message=self.message,
            tensors=tuple(self.errors()),
            regimes=tuple(regimes),
        )

    def errors(self) -> Iterator[TensorError]:
        """Errors of all tensors that are finite where the reference is."""
        for tensor in self.tensors:
            if tensor.nonfinite_count == 0:
                yield tensor.error.model_copy(update={"regime": self.regime})


@dataclass(frozen=True)
class CheckedSuite:
    """What `roofwatch check` found."""

    reports: tuple[CheckReport, ...]
    overflow_proofs: tuple[OverflowProof, ...] = ()
    operator_costs: tuple[OperatorCost, ...] = ()
    packages: tuple[KernelPackage, ...] = ()
    """Of the kernels, outside of the suite's own files."""
