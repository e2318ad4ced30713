"""Proves without a GPU that the offsets of a case fit into 32 bits, and counts what it costs."""

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePath

import torch

from roofwatch.collector.accuracy.evaluation import make_inputs
from roofwatch.collector.compile.bounds import Launch
from roofwatch.collector.compile.counted_calls import CallCounts, CountingMode
from roofwatch.collector.compile.dataless import (
    call_for_target,
    call_with_or_without_data,
    has_inputs,
)
from roofwatch.collector.compile.interval import Interval
from roofwatch.collector.compile.kernel_files import packages_of
from roofwatch.collector.compile.overflow import Access, Finding, check_accesses
from roofwatch.collector.compile.size_limits import FoundLimits, find_limits
from roofwatch.collector.compile.targets import parse_target
from roofwatch.collector.compile.traced_launches import IrCache, TracedLaunch, tracing_launches
from roofwatch.model.proofs import CaseProof, OperatorCost, OverflowProof, Proof, UnprovenAccess
from roofwatch.spec import Case, Implementation, KernelSpec, UnsupportedError

_MOST_CONFIGURATIONS = 4
"""Of an autotuned function: configurations rarely differ in how they compute offsets."""
_MOST_TARGETS = 3
_LARGEST_INPUTS = 2**40
"""Bytes of inputs up to which sizes are tried: several times the memory of any GPU."""
_LIMITS_BUDGET_S = 6.0
"""Time to look for the largest sizes of one case."""
_MOST_UNPROVEN = 32
_MAX_MESSAGE = 1_000
_MAX_GRID_X = 2**31 - 1
_MAX_GRID_YZ = 65_535
"""Source: CUDA C++ Programming Guide, technical specifications per compute capability."""
_CANNOT_TELL = "unknown index"
_ALL_POINTERS = "all"
"""Stands for the accesses of a launch that was not compiled."""


@dataclass
class _Trace:
    launches: list[TracedLaunch] = field(default_factory=list)
    counts: CallCounts = field(default_factory=CallCounts)


def prove_for_first_target(
    spec: KernelSpec,
    implementation: Implementation,
    case: Case,
    targets: Sequence[str],
) -> CaseProof:
    """Analyse one case for the first of a few targets that all its kernels compile for, else for
    the first.
    """
    proofs: list[CaseProof] = []
    for target in targets[:_MOST_TARGETS]:
        proof = prove_case(
            spec=spec,
            implementation=implementation,
            case=case,
            target=target,
        )
        if not _has_launch_without_ir(proof):
            return proof
        proofs.append(proof)
    return proofs[0]


def _has_launch_without_ir(proof: CaseProof) -> bool:
    return any(access.pointer == _ALL_POINTERS for access in proof.overflow.unproven)


def prove_case(
    spec: KernelSpec,
    implementation: Implementation,
    case: Case,
    target: str,
    *,
    limits_budget_s: float = _LIMITS_BUDGET_S,
) -> CaseProof:
    """Analyse one case for a target; what fails becomes the reason why nothing is known."""
    named = {"case_id": case.id, "implementation": implementation.name}
    prover = _Prover(spec, implementation, target)
    try:
        if not has_inputs(spec, case):
            return _not_called(named, "a captured launch has no sizes")
        trace = prover.trace(case)
    except UnsupportedError as error:
        return _not_called(named, str(error))
    except Exception as error:  # noqa: BLE001  a launcher raises many types
        message = f"cannot be called without a GPU: {type(error).__name__}: {error}"
        return _not_called(named, message)
    # An index that was read from memory has a range only with data.
    count, unproven = prover.check(trace)
    if any(access.reason.startswith(_CANNOT_TELL) for access in unproven):
        with suppress(Exception):  # the inputs may not fit into memory
            trace = prover.trace(case, ranges=_ranges_of_inputs(spec, case))
            count, unproven = prover.check(trace)
    proofs = {access.proof for access in unproven}
    worst = Proof.FITS
    if Proof.UNSAFE in proofs:
        worst = Proof.UNSAFE
    elif Proof.UNKNOWN in proofs:
        worst = Proof.UNKNOWN
    is_triton = any(launch.is_triton for launch in trace.launches)
    size_limits = FoundLimits()
    if worst is not Proof.UNSAFE and is_triton:
        deadline_s = time.monotonic() + limits_budget_s
        size_limits = find_limits(case, prover.first_overflow, deadline_s=deadline_s)
    gap: str | None = None
    if not is_triton:
        gap = "launches no Triton kernel"
        # no access of a Triton kernel was looked at, so nothing shows that all of them fit
        if worst is not Proof.UNSAFE:
            worst = Proof.UNKNOWN
    overflow = OverflowProof(
        **named,
        proof=worst,
        message=gap,
        access_count=count,
        unproven=tuple(unproven[:_MOST_UNPROVEN]),
        limits=size_limits.limits,
        searched=size_limits.searched,
    )
    modules = [launch.module for launch in trace.launches]
    return CaseProof(
        overflow=overflow,
        cost=_cost(named, target, trace),
        packages=packages_of(modules),
    )


def _not_called(named: Mapping[str, str], message: str) -> CaseProof:
    overflow = OverflowProof(
        **named,
        proof=Proof.UNKNOWN,
        message=message[:_MAX_MESSAGE],
    )
    return CaseProof(overflow=overflow)


class _Prover:
    def __init__(self, spec: KernelSpec, implementation: Implementation, target: str) -> None:
        self._spec = spec
        self._implementation = implementation
        self._target = target
        self._cache = IrCache()
        self._checked: dict[tuple[object, ...], list[Access]] = {}

    def trace(self, case: Case, ranges: Mapping[str, Interval] | None = None) -> _Trace:
        """Call the implementation without data, or with data if the launcher reads integers."""
        return call_with_or_without_data(partial(self._called, case, ranges))

    def _called(
        self,
        case: Case,
        ranges: Mapping[str, Interval] | None,
        *,
        has_data: bool,
        max_bytes: int = sys.maxsize,
    ) -> _Trace:
        """Call the launcher for a target, and trace its launches and operators."""
        mode = CountingMode()
        with tracing_launches(
            target=self._target,
            cache=self._cache,
            range_of=mode.range_of,
            most_configurations=_MOST_CONFIGURATIONS,
        ) as launches:
            call_for_target(
                spec=self._spec,
                implementation=self._implementation,
                case=case,
                target=self._target,
                mode=mode,
                ranges=ranges or {},
                has_data=has_data,
                max_bytes=max_bytes,
            )
        return _Trace(launches, mode.counts)

    def first_overflow(self, case: Case) -> UnprovenAccess | None:
        """Return the first overflow of a case that is called without data."""
        trace = self._called(
            case=case,
            ranges=None,
            has_data=False,
            max_bytes=_LARGEST_INPUTS,
        )
        _, unproven = self.check(trace)
        return next((access for access in unproven if access.proof is Proof.UNSAFE), None)

    def check(self, trace: _Trace) -> tuple[int, list[UnprovenAccess]]:
        """Return the number of accesses of all launches, and those that are not proven."""
        count = 0
        unproven: dict[tuple[str, str, str, Proof], UnprovenAccess] = {}
        for launch in trace.launches:
            launch_accesses = [*self._grid(launch)]
            if launch.is_triton and launch.ir is None:
                launch_accesses.append(_unproven(launch, launch.message or "has no IR"))
            accesses = self._accesses(launch)
            count += len(accesses)
            launch_accesses += [
                _of_access(launch, access)
                for access in accesses
                if access.finding is not Finding.FITS
            ]
            for access in launch_accesses:
                # an autotuned function is launched once for each configuration
                name = access.function.partition("[")[0]
                key = (name, access.pointer, access.kind, access.proof)
                unproven.setdefault(key, access)
        listed = sorted(unproven.values(), key=lambda access: access.proof is not Proof.UNSAFE)
        return count, listed

    def _accesses(self, launch: TracedLaunch) -> list[Access]:
        """Accesses of a launch by what the analysis found."""
        if launch.ir is None:
            return []
        key = (
            launch.ir,
            launch.grid,
            tuple(launch.arguments.items()),
            tuple(launch.ranges.items()),
        )
        # the same launch often repeats within a call
        if key not in self._checked:
            launch_sizes = Launch(
                arguments=launch.arguments,
                grid=launch.grid,
                ranges=launch.ranges,
            )
            self._checked[key] = check_accesses(launch.ir, launch_sizes)
        return self._checked[key]

    def _grid(self, launch: TracedLaunch) -> list[UnprovenAccess]:
        """Axes of the grid that exceed what CUDA allows."""
        if parse_target(self._target).backend != "cuda":
            return []
        limits = (_MAX_GRID_X, _MAX_GRID_YZ, _MAX_GRID_YZ)
        too_large: list[UnprovenAccess] = []
        for axis, size, limit in zip("xyz", launch.grid, limits, strict=True):
            if size <= limit:
                continue
            access = UnprovenAccess(
                function=launch.function,
                pointer="grid",
                kind="launch",
                proof=Proof.UNSAFE,
                reason=f"grid {axis} is {size:,}, and at most {limit:,} programs are allowed",
            )
            too_large.append(access)
        return too_large


def _unproven(launch: TracedLaunch, reason: str) -> UnprovenAccess:
    """A launch whose accesses could not be analysed."""
    return UnprovenAccess(
        function=launch.function,
        pointer=_ALL_POINTERS,
        kind="launch",
        proof=Proof.UNKNOWN,
        reason=reason,
    )


def _of_access(launch: TracedLaunch, access: Access) -> UnprovenAccess:
    """An access as a record holds it; only the file's name, not its folder."""
    is_overflow = access.finding is Finding.OVERFLOWS
    proof = Proof.UNKNOWN
    if is_overflow:
        proof = Proof.UNSAFE
    file_name = None
    line_number = None
    if access.line is not None:
        path, line_number = access.line
        file_name = PurePath(path).name
    return UnprovenAccess(
        function=launch.function,
        pointer=access.pointer,
        kind=access.kind,
        proof=proof,
        reason=access.reason,
        file=file_name,
        line=line_number,
    )


def _ranges_of_inputs(spec: KernelSpec, case: Case) -> dict[str, Interval]:
    """Return the smallest and largest integer of each input that has integers."""
    inputs = make_inputs(
        spec=spec,
        case=case,
        device="cpu",
        only_integers=True,
    )
    ranges: dict[str, Interval] = {}
    for name, value in inputs.items():
        if not isinstance(value, torch.Tensor) or value.is_floating_point():
            continue
        if value.numel():
            smallest = int(value.min())
            largest = int(value.max())
            ranges[name] = Interval(smallest, largest)
    return ranges


def _cost(named: Mapping[str, str], target: str, trace: _Trace) -> OperatorCost:
    """Traffic, memory, launches and waits of one call."""
    counts = trace.counts
    counted: dict[tuple[str, str, int], TracedLaunch] = {}
    repetitions: Counter[str] = Counter()
    for launch in trace.launches:
        name, bracket, _ = launch.function.partition("[")
        repetitions[launch.function] += 1
        # The configurations of an autotuned function are one launch, as often as each repeats.
        counted[name, bracket, repetitions[launch.function]] = launch
    return OperatorCost(
        **named,
        target=target,
        calls=dict(sorted(counts.by_name.items())),
        read_bytes=counts.read_bytes,
        written_bytes=counts.written_bytes,
        kernel_bytes=sum(launch.tensor_bytes for launch in counted.values()),
        peak_bytes=counts.peak_bytes,
        allocation_count=counts.allocation_count,
        allocated_bytes=counts.allocated_bytes,
        wait_count=counts.wait_count,
        launch_count=len(counted),
    )
