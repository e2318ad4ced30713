"""Results of analyses without a GPU: which offsets fit into 32 bits, and what a call costs."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from roofwatch.model.machine import CaseResult, Count, Integer, Message, Name, Part


class Proof(StrEnum):
    """What is known about the pointer offsets of a case."""

    FITS = "fits"
    """No 32-bit integer of an offset can overflow."""
    UNSAFE = "unsafe"
    """One overflows at the declared size, or the grid is too large."""
    UNKNOWN = "unknown"
    """Cannot be told; the reasons say why."""


class UnprovenAccess(Part):
    """A load, store or launch that is not proven to be right."""

    function: Name
    pointer: Name
    """The argument; `grid` if the grid is too large."""
    kind: Name
    """`load`, `store`, …"""
    proof: Proof
    reason: Message
    file: Annotated[str, Field(max_length=500)] | None = None
    """Without its folders."""
    line: Count | None = None


class SizeLimit(Part):
    """The largest size of one dimension, the others as declared, at which every offset fits."""

    dimension: Name
    declared: Integer
    largest: Integer
    first: UnprovenAccess
    """What overflows beyond it."""


class OverflowProof(CaseResult):
    """The offsets of all launches of one case and implementation."""

    proof: Proof
    message: Message | None = None
    """Why nothing could be analysed."""
    access_count: Count = 0
    unproven: Annotated[tuple[UnprovenAccess, ...], Field(max_length=32)] = ()
    limits: tuple[SizeLimit, ...] = ()
    """Sizes beyond what the declared case needs."""
    searched: tuple[Name, ...] = ()
    """Dimensions whose limit was looked for to the end; one without an entry has none."""


OPERATORS = "torch operators"
"""In place of a function, of the series of operator costs."""


class OperatorCost(CaseResult):
    """What one call does in torch and how often it launches.

    In the direction `bwd` that is the forward pass with gradients and the backward pass: some
    kernels compute gradients in the forward pass.
    """

    target: Name
    """The GPU that the launcher was told to run on."""
    calls: dict[Name, Count] = Field(default_factory=dict)
    """Number of calls of each torch operator that does work."""
    read_bytes: Count = 0
    """By torch operators."""
    written_bytes: Count = 0
    kernel_bytes: Count = 0
    """Of the tensors that are given to kernels, once for each launch."""
    peak_bytes: Count = 0
    """Largest total of the tensors that the call makes and that live at once."""
    allocation_count: Count = 0
    allocated_bytes: Count = 0
    wait_count: Count = 0
    """Times that the host waits for a value or a size from the device."""
    launch_count: Count = 0
    """Of Triton and CUDA C++ kernels."""

    @property
    def moved_bytes(self) -> int:
        return self.read_bytes + self.written_bytes + self.kernel_bytes


class KernelPackage(Part):
    """A package that launched kernels come from, which need not be the one that was meant."""

    name: Name
    version: Name | None = None
    """None if no installer wrote one."""
    folder: str
    warning: str | None = None
    """Why another folder of this name is not used."""


class CaseProof(Part):
    """What the analyses found out about one case and implementation."""

    overflow: OverflowProof
    cost: OperatorCost | None = None
    """None if the call failed."""
    packages: tuple[KernelPackage, ...] = ()
