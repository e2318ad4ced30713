"""What a worker tells of each kernel of its suite: cases with their cost, implementations, and what can be checked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from roofwatch.collector.errors import SuiteError
from roofwatch.collector.record.measurement import CaseRecord
from roofwatch.collector.source_lines import source_lines
from roofwatch.collector.workers.protocol import CaseKind, CheckableCase, ImplementationInfo, KernelInfo
from roofwatch.spec import Case, KernelSpec


def describe_kernel(spec: KernelSpec, repository: Path | None) -> KernelInfo:
    """What there is of a kernel.

    Args:
        spec: The kernel.
        repository: Of the suite, in which its functions are looked for.

    Raises:
        SuiteError: its cost cannot be worked out.
    """
    cases = []
    for case in spec.cases:
        try:
            flop_count, memory_bytes = float(spec.flop_count(case)), float(spec.memory_bytes(case))
            cases.append(
                CaseRecord(
                    case_id=case.id,
                    kernel=spec.name,
                    family=spec.family,
                    shape=dict(case.shape),
                    dtype=case.dtype,
                    direction=case.direction.value,
                    flop_count=flop_count,
                    memory_bytes=memory_bytes,
                    bus_bytes=None if spec.bus_bytes is None else float(spec.bus_bytes(case)),
                    tags=tuple(sorted(case.tags)),
                )
            )
        except Exception as error:  # a user's cost model raises what it likes
            raise SuiteError(f"{case.id}: flop_count or memory_bytes: {type(error).__name__}: {error}") from error
    return KernelInfo(
        name=spec.name,
        family=spec.family,
        formula=spec.formula,
        source=spec.source,
        cases=tuple(cases),
        edge_ids=tuple(case.id for case in spec.edges),
        checkable=tuple(
            CheckableCase(
                case_id=case.id,
                kind=kind,
                direction=case.direction.value,
                tags=tuple(sorted(case.tags)),
                stand_in_id=case.id if kind is CaseKind.EDGE else spec.interpreted_case(case).id,
                rank_count=spec.rank_count(case),
            )
            for kind, case in checkable_cases(spec)
        ),
        rank_dimension=spec.rank_dimension,
        implementations=tuple(
            ImplementationInfo(
                name=implementation.name,
                language=implementation.language.value,
                directions=tuple(sorted(direction.value for direction in implementation.directions)),
                is_compiled=implementation.is_compiled,
                is_deterministic=implementation.is_deterministic,
                unsupported_targets=dict(implementation.unsupported_targets),
                source_lines=source_lines(spec.name, implementation.name, implementation.launch, repository),
            )
            for implementation in spec.implementations.values()
        ),
    )


def checkable_cases(spec: KernelSpec) -> Iterator[tuple[CaseKind, Case]]:
    """Every case that can be asked for, once."""
    known: set[str] = set()
    for kind, cases in (
        (CaseKind.DECLARED, spec.cases),
        (CaseKind.EDGE, spec.edges),
        (CaseKind.STAND_IN, map(spec.interpreted_case, spec.cases)),
    ):
        for case in cases:
            if case.id not in known:
                known.add(case.id)
                yield kind, case
