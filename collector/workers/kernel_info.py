"""What a worker tells of each kernel of its suite: cases with their cost, implementations, and what can be checked."""

from __future__ import annotations

import dis
import functools
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from roofwatch.collector.errors import SuiteError
from roofwatch.collector.record.measurement import CaseRecord
from roofwatch.collector.record.record import SourceLine
from roofwatch.collector.suite import SuiteSource
from roofwatch.collector.workers.protocol import CaseKind, CheckableCase, ImplementationInfo, KernelInfo
from roofwatch.install import INSTALL_ROOT
from roofwatch.spec import Case, KernelSpec

_MAX_FUNCTIONS = 16
"""Of one implementation; more would tell nobody where to look."""
_MAX_VISITED = 500
_FROM_MODULE = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_FROM_VALUE = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_WRAPPED = ("__wrapped__", "fn", "_init_fn", "_backward_fn")
"""Where functools, Triton and torch's custom operators keep the functions that were decorated."""


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


# --- where an implementation is defined


def repository_of(source: SuiteSource) -> Path | None:
    """The root that files of a suite are named from; None where it is in no repository."""
    if source.import_roots:
        return source.import_roots[-1]
    is_checkout = source.path is None and (INSTALL_ROOT / ".git").exists()
    return INSTALL_ROOT if is_checkout else None


def source_lines(
    kernel: str, implementation: str, launch: Callable[..., Any], repository: Path | None
) -> tuple[SourceLine, ...]:
    """Where an implementation stands: what is called first, then what Triton compiles for it, in order of use.

    Args:
        kernel: Name of the kernel.
        implementation: Its name.
        launch: What is called.
        repository: Root that files are named from; None finds nothing.
    """
    if repository is None:
        return ()
    root = repository.resolve()
    found: list[SourceLine] = []
    for function, is_jitted in _functions(launch, root):
        if is_jitted or not found:
            code = function.__code__
            found.append(
                SourceLine(
                    kernel=kernel,
                    implementation=implementation,
                    function=function.__name__,
                    file=Path(code.co_filename).resolve().relative_to(root).as_posix(),
                    line=_line_of_def(code),
                    is_jitted=is_jitted,
                )
            )
    return tuple(found[:_MAX_FUNCTIONS])


def _functions(launch: object, root: Path) -> Iterator[tuple[FunctionType, bool]]:
    """Functions in the repository that are used, what is called first, and whether each is compiled by Triton."""
    waiting: deque[tuple[object, bool]] = deque([(launch, False)])
    seen: set[int] = set()
    while waiting and len(seen) < _MAX_VISITED:
        value, is_jitted = waiting.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, FunctionType) and "__wrapped__" not in vars(value):
            if _is_below(value.__code__.co_filename, root):
                yield value, is_jitted
                waiting += ((named, False) for named in _named_in(value))
            waiting += ((held, False) for held in _held_by(value))
        else:
            is_triton_s = type(value).__module__.split(".")[0] == "triton"
            waiting += ((inner, is_jitted or is_triton_s) for inner in _inside(value, root))


def _inside(value: object, root: Path) -> list[object]:
    """What a decorator wrapped; of a class in the repository, such as a torch.autograd.Function, its methods."""
    if isinstance(value, type):
        file = getattr(sys.modules.get(value.__module__), "__file__", None)
        return list(vars(value).values()) if file is not None and _is_below(file, root) else []
    if isinstance(value, functools.partial):
        return [value.func]
    if isinstance(value, (staticmethod, classmethod, MethodType)):
        return [value.__func__]
    attributes = getattr(value, "__dict__", {})
    return [attributes[name] for name in _WRAPPED if callable(attributes.get(name))]


def _named_in(function: FunctionType) -> list[object]:
    """What a function's code takes by name from its module, and from modules by their names."""
    return list(_taken_by(function.__code__, function.__globals__))


def _taken_by(code: CodeType, known: Mapping[str, object]) -> Iterator[object]:
    value: object = None
    for instruction in dis.get_instructions(code):
        if instruction.opname in _FROM_MODULE:
            value = known.get(instruction.argval)
        elif instruction.opname in _FROM_VALUE and isinstance(value, ModuleType):
            value = vars(value).get(instruction.argval)
        else:
            continue
        if value is not None and not isinstance(value, ModuleType):
            yield value
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _taken_by(constant, known)


def _held_by(function: FunctionType) -> list[object]:
    """What a function that was made within another one has from there."""
    held = []
    for cell in function.__closure__ or ():
        try:
            held.append(cell.cell_contents)
        except ValueError:  # it is not filled yet
            continue
    return held


def _line_of_def(code: CodeType) -> int:
    """Of its `def`: where a code object begins, decorators stand."""
    inside = [line for _, _, line in code.co_lines() if line is not None and line >= code.co_firstlineno]
    try:
        lines = Path(code.co_filename).read_text().splitlines()[code.co_firstlineno - 1 : max(inside, default=0)]
    except (OSError, ValueError):
        return code.co_firstlineno
    offsets = (offset for offset, line in enumerate(lines) if line.lstrip().startswith(("def ", "async def ")))
    return code.co_firstlineno + next(offsets, 0)


def _is_below(file: str, root: Path) -> bool:
    path = Path(file)
    return path.is_absolute() and path.resolve().is_relative_to(root) and "site-packages" not in path.parts
