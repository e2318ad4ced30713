"""Find where the functions of an implementation stand, from their code objects.

What is called is known; the functions that Triton compiles are those which it names, and which what it names names,
as far as that lies in the suite's repository.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from roofwatch.collector.record.record import SourceLine
from roofwatch.collector.suite import SuiteSource
from roofwatch.install import INSTALL_ROOT

_MAX_FUNCTIONS = 16
"""Of one implementation; more would tell nobody where to look."""
_MAX_VISITED = 500
_FROM_MODULE = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_FROM_VALUE = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_WRAPPED = ("__wrapped__", "fn", "_init_fn", "_backward_fn")
"""Where functools, Triton and torch's custom operators keep the functions that were decorated."""


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
