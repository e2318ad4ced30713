"""What the judge of `roofwatch submit` and a candidate's process exchange: arguments, answers and errors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from pydantic import BaseModel, ConfigDict, Field

ALIGNMENT = 64


def extent(byte_count: int) -> int:
    """Bytes that something takes in the shared memory."""
    return -(-byte_count // ALIGNMENT) * ALIGNMENT


class CandidateError(Exception):
    """A call that gave no result.

    Args:
        message: What happened.
        kinds: Names of the exception's classes, if the kernel raised one.
    """

    def __init__(self, message: str, kinds: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.kinds = frozenset(kinds)


class CandidateGoneError(CandidateError):
    """The process has ended and cannot be called again."""


class CandidateLateError(CandidateGoneError):
    """The process did not answer in time."""


class ForgeryError(CandidateError):
    """The process did something that no kernel does."""


class _Reply(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Output(_Reply):
    name: Annotated[str, Field(max_length=200)]
    dtype: Annotated[str, Field(max_length=20)]
    shape: Annotated[list[Annotated[int, Field(ge=0, le=2**40)]], Field(max_length=16)]
    start: Annotated[int, Field(ge=0)]


class _StaticFacts(_Reply):
    target: Annotated[str, Field(max_length=20)]
    function: Annotated[str, Field(max_length=200)]
    outcome: Annotated[str, Field(max_length=20)]
    registers: int | None = None
    spilled_registers: int | None = None
    local_bytes: int | None = None
    shared_bytes: int | None = None


class Answer(_Reply):
    """Every answer of the process; each request expects some of the fields."""

    missing: dict[str, str] | None = None
    outputs: Annotated[list[Output], Field(max_length=64)] | None = None
    claimed_ns: Annotated[int, Field(ge=0)] | None = None
    kernels: Annotated[list[Annotated[str, Field(max_length=300)]], Field(max_length=100)] | None = None
    static: Annotated[list[_StaticFacts], Field(max_length=100)] | None = None
    error: Annotated[str, Field(max_length=2_000)] | None = None
    kinds: list[str] = []


@dataclass(frozen=True)
class Returned:
    """What one call gave."""

    outputs: Mapping[str, torch.Tensor]
    """Copies, by name."""
    elapsed_ns: float
    """By the judge's clock, from the release of the inputs to the arrival of the answer."""
    claimed_ns: float
    """By the process's own clock; not to be trusted."""
    kernels: tuple[str, ...]
    """Kernels that CUPTI saw, if it was asked to; not to be trusted either."""
    changed_inputs: tuple[str, ...]


@dataclass(frozen=True)
class Arguments:
    """The arguments of one call: tensors on the CPU and plain values."""

    tensors: Mapping[str, torch.Tensor]
    values: Mapping[str, Any]
    gradients: tuple[str, ...] = ()
    """Inputs to differentiate."""
    upstream: tuple[torch.Tensor, ...] = ()
    """Gradients of the floating-point outputs."""

    def byte_count(self) -> int:
        return sum(extent(each.untyped_storage().nbytes()) for each in (*self.tensors.values(), *self.upstream))
