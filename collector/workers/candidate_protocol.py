"""What the judge of `roofwatch submit` and a candidate's process exchange: arguments, answers and
errors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

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
    """The process did not answer in time.

    Args:
        message: What happened.
        timeout_s: How long the judge waited.
    """

    def __init__(self, message: str, timeout_s: float) -> None:
        super().__init__(message)
        self.timeout_s = timeout_s


class TooManyProcessesError(CandidateError):
    """The process started others up to its limit."""


class ForgeryError(CandidateError):
    """The process did something that no kernel does."""


class _Reply(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Output(_Reply):
    name: str
    dtype: str
    shape: Annotated[list[NonNegativeInt], Field(max_length=16)]


class Answer(_Reply):
    """Every answer of the process, at most as long as a message; each request expects some of the
    fields.
    """

    number: int | None = None
    """Of the request."""
    missing: dict[str, str] = {}
    outputs: list[Output] | None = None
    kernels: list[str] = []
    static: list[dict[str, Any]] = []
    error: str | None = None
    kinds: list[str] = []


def parse_answer(message: bytes) -> Answer:
    """Parse an answer, which anybody in the process may have written.

    Raises:
        CandidateError: it reports an error; `ForgeryError` if it is malformed.
    """
    try:
        answer = Answer.model_validate_json(message)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ForgeryError(f"malformed answer: {first['msg']}") from None
    if answer.error is not None:
        raise CandidateError(answer.error, answer.kinds)
    return answer


@dataclass(frozen=True)
class Returned:
    """What one call gave."""

    outputs: Mapping[str, torch.Tensor]
    """Copies, by name."""
    elapsed_ns: float
    """By the judge's clock, from the release of the inputs to the arrival of the answer."""
    kernels: tuple[str, ...]
    """Kernels that CUPTI saw, if it was asked to; not to be trusted."""
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
