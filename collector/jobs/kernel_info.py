"""Describe the kernels of a suite: cases with their cost, implementations, and where their
functions are defined.
"""

import dis
import functools
import linecache
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from roofwatch.collector.workers.lazy_imports import (
    WrittenFunction,
    imported_names,
    written_functions,
)
from roofwatch.install import INSTALL_ROOT
from roofwatch.model.errors import SuiteError
from roofwatch.model.measurement import CaseRecord
from roofwatch.model.source_line import SourceLine
from roofwatch.model.suite_source import SuiteSource
from roofwatch.model.worker_protocol import (
    CaseKind,
    CheckableCase,
    ImplementationInfo,
    KernelInfo,
)
from roofwatch.spec import Case, Implementation, KernelSpec

_MAX_SOURCE_LINES = 16
_MAX_VISITED = 500
_WRAPPED = ("__wrapped__", "fn", "_init_fn", "_backward_fn")
"""Attributes in which functools, Triton and torch's custom operators keep the decorated function.
"""


def describe_kernel(spec: KernelSpec, repository: Path | None) -> KernelInfo:
    """Describe a kernel; the root of the suite's repository serves to find source lines.

    Raises:
        SuiteError: the cost model of a case fails.
    """
    return KernelInfo(
        name=spec.name,
        family=spec.family,
        formula=spec.formula,
        source=spec.source,
        cases=tuple(case_record(spec, case) for case in spec.cases),
        checkable=tuple(
            _describe_checkable(spec, case, kind) for case, kind in checkable_cases(spec).items()
        ),
        rank_dimension=spec.rank_dimension,
        implementations=tuple(
            _describe_implementation(spec.name, implementation, repository)
            for implementation in spec.implementations.values()
        ),
    )


def _describe_checkable(spec: KernelSpec, case: Case, kind: CaseKind) -> CheckableCase:
    """A case with the one that stands in for it in Triton's interpreter."""
    stand_in = case
    # edges are checked as they are: their odd sizes are the point
    if kind != "edge":
        stand_in = spec.interpreted_case(case)
    return CheckableCase(
        case_id=case.id,
        kind=kind,
        direction=case.direction.value,
        tags=tuple(sorted(case.tags)),
        stand_in_id=stand_in.id,
        rank_count=spec.rank_count(case),
    )


def _describe_implementation(
    kernel: str,
    implementation: Implementation,
    repository: Path | None,
) -> ImplementationInfo:
    """What a run needs to know of an implementation, without its code."""
    return ImplementationInfo(
        name=implementation.name,
        language=implementation.language.value,
        directions=tuple(sorted(direction.value for direction in implementation.directions)),
        is_compiled=implementation.is_compiled,
        unsupported_targets=dict(implementation.unsupported_targets),
        configs=tuple(dict(configuration) for configuration in implementation.configs),
        source_lines=source_lines(
            kernel=kernel,
            implementation=implementation.name,
            launch=implementation.launch,
            repository=repository,
        ),
    )


def case_record(spec: KernelSpec, case: Case) -> CaseRecord:
    """The case with its cost, as a record holds it."""
    bus_bytes = None
    token_count = None
    try:
        if spec.bus_bytes is not None:
            bus_bytes = float(spec.bus_bytes(case))
        if spec.token_count is not None:
            token_count = float(spec.token_count(case))
        return CaseRecord(
            case_id=case.id,
            kernel=spec.name,
            family=spec.family,
            shape=dict(case.shape),
            dtype=case.dtype,
            direction=case.direction.value,
            flop_count=float(spec.flop_count(case)),
            memory_bytes=float(spec.memory_bytes(case)),
            bus_bytes=bus_bytes,
            token_count=token_count,
            tags=tuple(sorted(case.tags)),
        )
    except Exception as error:  # a user's cost model may raise anything
        raise SuiteError(
            f"{case.id}: flop_count or memory_bytes: {type(error).__name__}: {error}"
        ) from error


def checkable_cases(spec: KernelSpec) -> dict[Case, CaseKind]:
    """Every case that can be checked, with its first kind."""
    kinds: dict[Case, CaseKind] = {
        **dict.fromkeys(spec.cases, "declared"),
        **dict.fromkeys(spec.edges, "edge"),
    }
    for case in spec.cases:
        kinds.setdefault(spec.interpreted_case(case), "stand_in")
    return kinds


def find_case(
    specs: Iterable[KernelSpec],
    case_id: str,
    implementation: str,
) -> tuple[KernelSpec, Case, Implementation]:
    """Find a case, which may be an edge or a stand-in, and one of its implementations.

    Raises:
        SuiteError: the suite does not have them.
    """
    for spec in specs:
        for case in checkable_cases(spec):
            if case.id == case_id and implementation in spec.implementations:
                return spec, case, spec.implementations[implementation]
    raise SuiteError(f"the suite has no case {case_id!r} with implementation {implementation}")


def repository_of(source: SuiteSource) -> Path | None:
    """Root of the repository of a suite, or None."""
    if source.root is not None:
        return source.root
    is_checkout = source.path is None and (INSTALL_ROOT / ".git").exists()
    return INSTALL_ROOT if is_checkout else None


def source_lines(
    kernel: str,
    implementation: str,
    launch: Callable[..., Any],
    repository: Path | None,
) -> tuple[SourceLine, ...]:
    """Find the functions of an implementation: the launcher, then the functions that Triton
    compiles, in order of use.

    The launcher is what the declared one imports when it is called, if anything: `roofwatch init`
    writes such wrappers. Functions outside the repository are left out.
    """
    if repository is None:
        return ()
    root = repository.resolve()
    written = list(_imported_late(launch, root))
    for function, is_jitted in _functions(launch, root):
        written.append(
            WrittenFunction(
                name=function.__name__,
                file=Path(function.__code__.co_filename).resolve(),
                line=_line_of_def(function.__code__),
                is_jitted=is_jitted,
            )
        )
    launchers = [function for function in written if not function.is_jitted]
    jitted = [function for function in written if function.is_jitted]
    # the launcher comes first, and each function once
    functions = dict.fromkeys([*launchers[:1], *jitted])
    lines = [
        SourceLine(
            kernel=kernel,
            implementation=implementation,
            function=function.name,
            file=function.file.relative_to(root).as_posix(),
            line=function.line,
            is_jitted=function.is_jitted,
        )
        for function in functions
    ]
    return tuple(lines[:_MAX_SOURCE_LINES])


def _imported_late(launch: object, root: Path) -> Iterator[WrittenFunction]:
    """Yield functions of the repository that a launcher imports when it is called, and those that
    they use; of what other functions import, only the jitted ones.
    """
    for position, (function, is_jitted) in enumerate(_functions(launch, root)):
        if is_jitted:
            continue
        package = str(function.__globals__.get("__package__") or "")
        for name in imported_names(function.__code__, package):
            for imported in written_functions(name, root):
                if position == 0 or imported.is_jitted:
                    yield replace(imported, file=imported.file.resolve())


def _functions(launch: object, root: Path) -> Iterator[tuple[FunctionType, bool]]:
    """Yield functions of the repository that a launcher uses, and whether Triton compiles each."""
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
                waiting += (
                    (used, False) for used in _used_globals(value.__code__, value.__globals__)
                )
            waiting += ((captured, False) for captured in _captured(value))
        else:
            is_triton = type(value).__module__.split(".")[0] == "triton"
            waiting += ((inner, is_jitted or is_triton) for inner in _unwrapped(value, root))


def _unwrapped(value: object, root: Path) -> list[object]:
    """The function in a decorator's result, the methods of a class in the repository, or the
    elements of a tuple.
    """
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, type):
        file = getattr(sys.modules.get(value.__module__), "__file__", None)
        if file is not None and _is_below(file, root):
            return list(vars(value).values())
        return []
    if isinstance(value, functools.partial):
        return [value.func]
    if isinstance(value, (staticmethod, classmethod, MethodType)):
        return [value.__func__]
    attributes = getattr(value, "__dict__", {})
    return [attributes[name] for name in _WRAPPED if callable(attributes.get(name))]


def _used_globals(code: CodeType, module_globals: dict[str, Any]) -> Iterator[object]:
    """Yield globals that a function uses, and attributes that it takes from modules."""
    value: object = None
    for name, is_global in _loaded_names(code):
        if is_global:
            value = module_globals.get(name)
        elif isinstance(value, ModuleType):
            value = vars(value).get(name)
        else:
            continue
        if value is not None and not isinstance(value, ModuleType):
            yield value
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _used_globals(constant, module_globals)


@functools.cache  # most functions of a suite are used by many implementations
def _loaded_names(code: CodeType) -> tuple[tuple[str, bool], ...]:
    """Names that a function loads, in order, and whether each is a global or an attribute."""
    names: list[tuple[str, bool]] = []
    for instruction in dis.get_instructions(code):
        if instruction.opname in {"LOAD_GLOBAL", "LOAD_NAME"}:
            names.append((instruction.argval, True))
        elif instruction.opname in {"LOAD_ATTR", "LOAD_METHOD"}:
            names.append((instruction.argval, False))
    return tuple(names)


def _captured(function: FunctionType) -> Iterator[object]:
    """Values that a function takes from the scopes around it."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # empty cell
            continue


def _line_of_def(code: CodeType) -> int:
    """Line of a function's `def`; its code object starts at the first decorator."""
    if code.co_name == "<lambda>":
        return code.co_firstlineno
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :]
    starts = (
        offset
        for offset, line in enumerate(lines)
        if line.lstrip().startswith(("def ", "async def "))
    )
    return code.co_firstlineno + next(starts, 0)


def _is_below(file: str, root: Path) -> bool:
    """Whether a file belongs to the project rather than to an installed package."""
    path = Path(file)
    return (
        path.is_absolute()
        and path.resolve().is_relative_to(root)
        and "site-packages" not in path.parts
    )
