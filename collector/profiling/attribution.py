"""Where the time of one step went: by module, autograd function and source line."""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

_OPERATORS = (ast.BinOp, ast.Compare, ast.Subscript, ast.AugAssign)
"""Expressions that call operators of PyTorch without a call that the profiler sees."""


@dataclass(frozen=True)
class AttributedTime:
    """Time of everything inside one module, function or line, in ns."""

    name: str
    """Place of a module, numbers as `*`; name of a function; file and line."""
    detail: str
    """Class of a module, place of a Python function, enclosing function of a line."""
    call_count: int
    forward_ns: int
    """For a line: whatever it called itself."""
    backward_ns: int
    """Backward passes of the operators inside."""
    innermost_ns: int
    """Own time: the part of both in which nothing of the same kind was inside it, and inside a
    function or line no module either.
    """

    @property
    def inclusive_ns(self) -> int:
        return self.forward_ns + self.backward_ns


@dataclass(frozen=True)
class StepAttribution:
    """Times of one step on the host or on all devices; each list has the longest first."""

    where: str
    """`host` or `device`."""
    total_ns: int
    """Length of the step, or busy time of all devices."""
    modules: tuple[AttributedTime, ...]
    functions: tuple[AttributedTime, ...]
    """Of the class `torch.autograd.Function`."""
    calls: tuple[AttributedTime, ...]
    """Python functions of the program, with everything that they call."""
    lines: tuple[AttributedTime, ...]
    """Lines of the program, not of installed packages."""


def read_attributions(
    times: Mapping[str, Any],
    folders: Sequence[Path],
    clean: Callable[[str], str],
) -> tuple[StepAttribution, ...]:
    """Read what the recorder added up, as one value for the host and one for devices.

    Args:
        times: Written by `inject/roofwatch_attribution.py`.
        folders: Where source files with relative names may be.
        clean: Redacts a text.
    """
    attributions = []
    for where in ("device", "host"):
        total_ns = times[where]["total_ns"]
        if not total_ns:
            continue
        by_kind: dict[str, list[AttributedTime]] = {
            "module": [],
            "function": [],
            "call": [],
            "line": [],
        }
        for row in times[where]["rows"]:
            name = _name(row, folders)
            detail = row["detail"]
            if row["kind"] == "call":
                detail = name
                name = _qualified_name(row, folders)
            time = AttributedTime(
                name=clean(name),
                detail=clean(detail),
                call_count=row["call_count"],
                forward_ns=row["forward_ns"],
                backward_ns=row["backward_ns"],
                innermost_ns=row["innermost_ns"],
            )
            # scopes are entered on the host, also where only devices worked
            if time.inclusive_ns:
                by_kind[row["kind"]].append(time)
        attribution = StepAttribution(
            where=where,
            total_ns=total_ns,
            modules=tuple(by_kind["module"]),
            functions=tuple(by_kind["function"]),
            calls=tuple(by_kind["call"]),
            lines=_merged(by_kind["line"]),
        )
        attributions.append(attribution)
    return tuple(attributions)


def _merged(times: Sequence[AttributedTime]) -> tuple[AttributedTime, ...]:
    """Add up lines of the same name: an operator and a call of one line are two entries."""
    by_name: dict[str, AttributedTime] = {}
    for time in times:
        same = by_name.get(time.name)
        if same is None:
            by_name[time.name] = time
            continue
        by_name[time.name] = replace(
            same,
            call_count=max(same.call_count, time.call_count),
            forward_ns=same.forward_ns + time.forward_ns,
            backward_ns=same.backward_ns + time.backward_ns,
            innermost_ns=same.innermost_ns + time.innermost_ns,
        )
    return tuple(sorted(by_name.values(), key=lambda time: -time.inclusive_ns))


def _name(row: Mapping[str, Any], folders: Sequence[Path]) -> str:
    """The name of a row; functions and lines have their place."""
    name: str = row["name"]
    if row["kind"] not in {"call", "line"}:
        return name
    first_line = row["first_line"]
    last_line = row["last_line"]
    if first_line != last_line:
        first_line, last_line = _narrowed(
            file_name=name,
            first_line=first_line,
            last_line=last_line,
            folders=folders,
        )
    if first_line == last_line:
        return f"{name}:{first_line}"
    return f"{name}:{first_line}-{last_line or ''}"


def _qualified_name(row: Mapping[str, Any], folders: Sequence[Path]) -> str:
    """Name of a function with its class, such as `Rotary.__call__`."""
    name: str = row["detail"]
    tree = _parsed(row["name"], folders)
    if tree is None:
        return name
    for owner in ast.walk(tree):
        if not isinstance(owner, ast.ClassDef):
            continue
        for node in owner.body:
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            if _first_line(node) == row["first_line"]:
                return f"{owner.name}.{name}"
    return name


def _first_line(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Python counts decorators as part of a function, the syntax tree does not."""
    return min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])


def _narrowed(
    file_name: str,
    first_line: int,
    last_line: int,
    folders: Sequence[Path],
) -> tuple[int, int]:
    """Narrow a range of lines to those that have an operator such as `+` or an index.

    The last line may be 0: the end of the function.
    """
    tree = _parsed(file_name, folders)
    if tree is None:
        return first_line, last_line
    if not last_line:
        last_line = _end_of_function(tree, first_line)
    lines = sorted(line for line in set(_operator_lines(tree)) if first_line <= line <= last_line)
    if not lines:
        return first_line, last_line
    return lines[0], lines[-1]


def _parsed(file_name: str, folders: Sequence[Path]) -> ast.Module | None:
    """The syntax tree of the first file of that name."""
    for folder in folders:
        try:
            return ast.parse((folder / file_name).read_text())
        except (OSError, ValueError, SyntaxError):
            continue
    return None


def _end_of_function(tree: ast.Module, line: int) -> int:
    """Last line of the innermost function around a line, or of the file."""
    last_line = max((node.end_lineno or 0 for node in tree.body), default=line)
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        # inner functions are visited after outer ones
        if _first_line(node) <= line <= (node.end_lineno or 0):
            last_line = node.end_lineno or last_line
    return last_line


def _operator_lines(tree: ast.Module) -> Iterator[int]:
    """Lines with an operator such as `a + b`, which the profiler sees no call for."""
    for node in ast.walk(tree):
        is_operator = isinstance(node, _OPERATORS)
        if isinstance(node, ast.UnaryOp):
            # -1 is a number
            is_operator = not isinstance(node.operand, ast.Constant)
        if is_operator:
            yield node.lineno  # type: ignore[attr-defined]  # all of these have a place
