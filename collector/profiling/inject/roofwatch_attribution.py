"""Adds up the time of a recorded step by module, autograd function, Python function and line.

It reads the event tree of torch's profiler, recorded with Python stacks. The standard library only,
and no other module of ours.
"""

from __future__ import annotations

import gc
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

_EVALUATE = "autograd::engine::evaluate_function: "
_RUNTIME_CALL = re.compile(r"(cuda|cu|hip)[A-Z]\w*|Activity Buffer Request|Command Buffer Full")
"""Activities of the profiler on the host; its other activities run on a GPU."""
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
"""A whole part of a dotted name."""


class EnclosingScope(NamedTuple):
    """A module, autograd function (`function`), Python function (`call`) or line around events."""

    kind: str
    name: str
    detail: str = ""
    """Class of a module, enclosing function of a line."""
    first_line: int = 0
    last_line: int = 0
    """0: not known."""


class Totals:
    """Times in ns of one scope."""

    def __init__(self) -> None:
        self.call_count = 0
        self.forward_ns = 0
        self.backward_ns = 0
        self.innermost_ns = 0
        """Part of both that was spent in the scope itself: no scope of its kind was inside, and for
        functions and lines no module either.
        """


Context = tuple[tuple[EnclosingScope, bool], ...]
"""Scopes around an event, outermost first, and whether the event is part of their backward pass."""


class Attribution:
    """Totals on the host, and on all devices together."""

    def __init__(self, source_files: SourceFiles, module_names: dict[int, str]) -> None:
        self._source_files = source_files
        self._module_names = module_names
        self._forward: dict[int, tuple[int, Context]] = {}
        """End and context of the operator that has a sequence number: its backward pass has the
        same.
        """
        self._totals: dict[str, dict[EnclosingScope, Totals]] = {"host": {}, "device": {}}
        self._step_ns = 0
        self._device_ns = 0

    def add(self, roots: Iterable[Any]) -> None:
        """Add all events below the roots of a tree."""
        roots = list(roots)
        first_ns = min((root.start_time_ns for root in roots), default=0)
        self._step_ns = max((root.end_time_ns for root in roots), default=0) - first_ns
        pending: list[tuple[Any, Context, Any, int]] = [
            (root, (), None, root.end_time_ns) for root in reversed(roots)
        ]
        while pending:
            node, outer, line_hint, last_ns = pending.pop()
            context = self._context(node, outer, line_hint)
            children = list(node.children)
            end_ns = min(node.end_time_ns, last_ns)
            self._add_time(
                node=node,
                context=context,
                children=children,
                end_ns=end_ns,
            )
            lines = self._operator_lines(node, children)
            # the last one is taken first: forward operators must come before their backward pass
            for child, child_line in zip(reversed(children), reversed(lines), strict=True):
                # work on a device may go on after the call that issued it
                child_ns = child.end_time_ns if _is_on_device(child, child.children) else end_ns
                pending.append((child, context, child_line, child_ns))

    def to_document(self) -> dict[str, Any]:
        return {
            "host": {"total_ns": self._step_ns, "rows": list(self._rows("host"))},
            "device": {"total_ns": self._device_ns, "rows": list(self._rows("device"))},
        }

    def _rows(self, where: str) -> Iterator[dict[str, Any]]:
        """Rows of one kind after another, the longest first."""
        by_kind: dict[str, list[tuple[int, EnclosingScope, Totals]]] = {}
        for scope, totals in self._totals[where].items():
            inclusive_ns = totals.forward_ns + totals.backward_ns
            by_kind.setdefault(scope.kind, []).append((inclusive_ns, scope, totals))
        for entries in by_kind.values():
            entries.sort(key=lambda entry: (-entry[0], entry[1]))
            for _, scope, totals in entries:
                yield {**scope._asdict(), **vars(totals)}

    def _context(self, node: Any, outer: Context, line_hint: Any) -> Context:
        """The scopes around what happens in a node."""
        context = outer
        fields = node.extra_fields
        caller = getattr(fields, "caller", None)
        if caller is not None and not _was_running(fields):
            line = self._source_files.line(caller)
            if line is not None:
                context = self._enter(context, line)
            call = self._source_files.call(getattr(fields, "callsite", None))
            if call is not None:
                context = self._enter(context, call)
        module = getattr(fields, "module", None)
        if module is not None:
            name = self._module_names.get(module.self_ptr, module.cls_name)
            scope = EnclosingScope(
                kind="module",
                name=name,
                detail=module.cls_name,
            )
            context = self._enter(context, scope)
        sequence_number = getattr(fields, "sequence_number", -1)
        if sequence_number < 0 and not line_hint:
            return context
        if line_hint:
            context = self._enter(context, line_hint)
        if _is_custom_function(node):
            context = self._enter(context, EnclosingScope("function", node.name))
        if node.name.startswith(_EVALUATE):
            _, forward = self._forward.get(sequence_number, (0, ()))
            return _with_forward(context, forward)
        if sequence_number >= 0:
            # an operator without a backward pass leaves its number to the next one; one inside
            # another has the number of the outer one, which is the one to name
            earlier_end_ns, _ = self._forward.get(sequence_number, (0, ()))
            if node.start_time_ns >= earlier_end_ns:
                self._forward[sequence_number] = (node.end_time_ns, context)
        return context

    def _enter(self, context: Context, scope: EnclosingScope) -> Context:
        """Add a scope around an event, and count the call."""
        # a comprehension is a frame of its own at the line that it stands in: it counts once
        if any(_is_same_line(outer_scope, scope) for outer_scope, _ in context):
            return context
        for where in ("host", "device"):
            totals = self._totals[where].setdefault(scope, Totals())
            totals.call_count += 1
        if any(outer_scope == scope for outer_scope, _ in context):
            return context  # a recursive call counts once
        return (*context, (scope, False))

    def _add_time(self, node: Any, context: Context, children: Sequence[Any], end_ns: int) -> None:
        """Add what is spent in a node itself.

        An annotation such as `record_function` begins inside the call that starts it and goes on
        after it: it counts until the end of that call, and what follows counts by itself.
        """
        where = "device" if _is_on_device(node, children) else "host"
        own_ns = end_ns - node.start_time_ns
        for child in children:
            if not _is_on_device(child, child.children):
                own_ns -= min(child.end_time_ns, end_ns) - child.start_time_ns
        if own_ns <= 0:
            return
        if where == "device":
            self._device_ns += own_ns
        innermost: dict[str, Totals] = {}
        for scope, is_backward in context:
            totals = self._totals[where].setdefault(scope, Totals())
            if scope.kind == "module":
                # a function only calls what its modules do
                innermost.pop("call", None)
                innermost.pop("line", None)
            innermost[scope.kind] = totals
            if is_backward:
                totals.backward_ns += own_ns
            else:
                totals.forward_ns += own_ns
        for totals in innermost.values():
            totals.innermost_ns += own_ns

    def _operator_lines(self, node: Any, children: Sequence[Any]) -> list[Any]:
        """The line of each operator that Python's own operators call; None for other events.

        The profiler sees no call in `a + b`: its line is between those of the calls before and
        after it.
        """
        lines: list[Any] = [None] * len(children)
        callsite = getattr(node.extra_fields, "callsite", None)
        if callsite is None or not self._source_files.is_users(callsite.file_name):
            return lines
        called_at = [getattr(child.extra_fields, "caller", None) for child in children]
        previous_line = callsite.line_number
        next_lines = _next_lines(called_at)
        for index, caller in enumerate(called_at):
            if caller is not None:
                previous_line = caller.line_number
            elif _is_operator(children[index]):
                first, last = previous_line, next_lines[index]
                # the calls around it belong to different turns of a loop
                if last and last < first:
                    first, last = callsite.line_number, 0
                lines[index] = EnclosingScope(
                    kind="line",
                    name=callsite.file_name,
                    detail=callsite.function_name,
                    first_line=first,
                    last_line=last,
                )
        return lines


def _is_same_line(outer: EnclosingScope, inner: EnclosingScope) -> bool:
    """Whether two lines are one although their frames differ in name."""
    if outer.kind != "line" or inner.kind != "line" or outer.detail == inner.detail:
        return False
    return (outer.name, outer.first_line) == (inner.name, inner.first_line)


def _next_lines(callers: Sequence[Any]) -> list[int]:
    """Line of the next call after each event; 0 if there is none."""
    next_lines = []
    next_line = 0
    for caller in reversed(callers):
        next_lines.append(next_line)
        if caller is not None:
            next_line = caller.line_number
    next_lines.reverse()
    return next_lines


def _was_running(fields: Any) -> bool:
    """Whether a function was called before the recording began: it seems to call itself."""
    callsite = getattr(fields, "callsite", None)
    if callsite is None:
        return False
    caller = fields.caller
    return (caller.file_name, caller.line_number, caller.function_name) == (
        callsite.file_name,
        callsite.line_number,
        callsite.function_name,
    )


def _is_operator(node: Any) -> bool:
    return getattr(node.extra_fields, "sequence_number", None) is not None


def _is_custom_function(node: Any) -> bool:
    """Whether an operator is the forward pass of a `torch.autograd.Function`."""
    parent = node.parent
    return parent is not None and "of FunctionMeta object" in parent.name


def _is_on_device(node: Any, children: Sequence[Any]) -> bool:
    is_activity = str(node.tag).startswith("_EventType.Kineto")
    return is_activity and not children and _RUNTIME_CALL.match(node.name) is None


def _with_forward(context: Context, forward: Context) -> Context:
    """Add the scopes of the forward pass; they are its last, because they are the ones to name."""
    scopes = {scope for scope, _ in forward}
    around = tuple(entry for entry in context if entry[0] not in scopes)
    return (*around, *((scope, True) for scope, _ in forward))


class SourceFiles:
    """Tells files of the program from those of Python, installed packages and torch.compile."""

    def __init__(self) -> None:
        paths = sysconfig.get_paths()
        folders = [Path(paths[name]) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
        # our own files are on the stack when a recording starts
        folders.append(Path(__file__).parent)
        # torch.compile sets this on first use, to the folder of the code that it generates
        generated_code = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
        if generated_code is not None:
            folders.append(Path(generated_code))
        self._library_folders = [folder.resolve() for folder in folders]
        self._is_users: dict[str, bool] = {}

    def is_users(self, file_name: str) -> bool:
        """Whether a file is the program's own."""
        if file_name not in self._is_users:
            path = self._path(file_name)
            self._is_users[file_name] = path is not None and not any(
                path.is_relative_to(folder) for folder in self._library_folders
            )
        return self._is_users[file_name]

    def line(self, frame: Any) -> EnclosingScope | None:
        """The line that a frame is at; None if it is not the program's own."""
        if not self.is_users(frame.file_name):
            return None
        line = frame.line_number
        return EnclosingScope(
            kind="line",
            name=frame.file_name,
            detail=frame.function_name,
            first_line=line,
            last_line=line,
        )

    def call(self, frame: Any) -> EnclosingScope | None:
        """The function that a frame begins; None if it is not the program's own, or has no name."""
        if frame is None or frame.function_name.startswith("<"):
            return None
        if not self.is_users(frame.file_name):
            return None
        return EnclosingScope(
            kind="call",
            name=frame.file_name,
            detail=frame.function_name,
            first_line=frame.line_number,
            last_line=frame.line_number,
        )

    def _path(self, file_name: str) -> Path | None:
        """The profiler leaves out the entry of `sys.path` that a file name starts with."""
        for folder in ("", *sys.path):
            path = Path(folder, file_name)
            if path.is_file():
                return path.resolve()
        return None


def module_names() -> dict[int, str]:
    """Name each module of the process by its place in the outermost one, by identity.

    Numbers become `*`, so that layers of the same structure share a name.
    """
    from torch.nn import Module

    # not isinstance, which asks proxies for their class and runs their code
    modules = [value for value in gc.get_objects() if issubclass(type(value), Module)]
    inner: set[int] = set()
    for module in modules:
        inner.update(id(child) for child in module.children())
    names: dict[int, str] = {}
    for module in modules:
        if id(module) in inner:
            continue
        root_name = type(module).__name__
        for name, member in module.named_modules():
            full_name = f"{root_name}.{name}" if name else root_name
            names.setdefault(id(member), _NUMBER.sub("*", full_name))
    return names


def attribute(profiler: Any) -> dict[str, Any]:
    """Return the times of a session of torch's profiler as a JSON document."""
    attribution = Attribution(SourceFiles(), module_names())
    attribution.add(profiler.kineto_results.experimental_event_tree())
    return attribution.to_document()
