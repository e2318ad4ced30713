"""Run a program and note how it launches jitted functions: `python capture_main.py FILE -- program.py ARGS`, or
`-- -m module ARGS`.

Whether a launch succeeds is the program's business; what is noted is written when the program ends, in whatever way it
ends itself. Without a GPU kernels run in Triton's interpreter, since nothing else here can run them.
"""

from __future__ import annotations

import atexit
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from roofwatch.collector.compile.signature import POINTEES, Argument, Signature, read_signatures, to_toml
from roofwatch.collector.errors import SuiteError
from roofwatch.collector.outbox.files import atomic_write

_NOT_OPTIONS = frozenset({"grid", "warmup"})
_INT32 = range(-(2**31), 2**31)
_INT64 = range(-(2**63), 2**63)


class _NotWritableError(Exception):
    """A launch that no signature can say; the message says why."""


class Capture:
    """Notes launches into a file of signatures; those that it has already stay.

    Args:
        file: Of signatures; made at the end if it is not there.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._found = {(one.function, one.digest): one for one in (read_signatures(file) if file.exists() else ())}
        self._skipped: set[str] = set()
        self._is_within_launch = False
        self._known_count = len(self._found)

    def install(self) -> None:
        """Listen to every launch of this process from now on."""
        from triton.runtime.autotuner import Autotuner, Heuristics
        from triton.runtime.jit import JITFunction

        kinds: list[Any] = [Autotuner, Heuristics, JITFunction]
        if os.environ.get("TRITON_INTERPRET") == "1":
            from triton.runtime.interpreter import InterpretedFunction

            Autotuner.run = _run_first_configuration  # nothing is timed where nothing is compiled
            kinds.append(InterpretedFunction)
        for kind in kinds:
            kind.run = self._listening(kind.run)

    def write(self) -> None:
        """Write the file, and say on standard error what is in it."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(self._file, to_toml(self._found.values()).encode())
        new = len(self._found) - self._known_count
        print(f"roofwatch: {len(self._found)} signatures in {self._file}, {new} of them new", file=sys.stderr)
        for reason in sorted(self._skipped):
            print(f"roofwatch: left out: {reason}", file=sys.stderr)

    def _listening(self, run: Callable[..., Any]) -> Callable[..., Any]:
        def listen(function: Any, *args: Any, **kwargs: Any) -> Any:
            # an autotuner launches what it wraps, and is itself what a program launches
            is_outermost, self._is_within_launch = not self._is_within_launch, True
            try:
                if is_outermost:
                    self._note(function, args, kwargs)
                return run(function, *args, **kwargs)
            finally:
                if is_outermost:
                    self._is_within_launch = False

        return listen

    def _note(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            signature = _signature_of(function, args, kwargs, self._file.resolve().parent)
        except _NotWritableError as error:
            self._skipped.add(str(error))
        else:
            self._found.setdefault((signature.function, signature.digest), signature)


def _run_first_configuration(self: Any, *args: Any, **kwargs: Any) -> Any:
    self.nargs = dict(zip(self.arg_names, args, strict=False))
    config = self.prune_configs(kwargs)[0]
    return self.fn.run(*args, **kwargs, **config.kwargs)


def _signature_of(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], folder: Path) -> Signature:
    body = function
    while hasattr(body, "fn"):
        body = body.fn
    home = _home_of(function, body, folder)
    constexprs = {name for name, kind in body.__annotations__.items() if "constexpr" in str(kind)}
    names = list(body.__code__.co_varnames[: body.__code__.co_argcount])
    given = {**dict(zip(names, args, strict=False)), **{name: kwargs[name] for name in names if name in kwargs}}
    plain = _parameters_without_hints(function)
    arguments = {}
    for name, value in given.items():
        try:
            arguments[name] = _constant(value) if name in constexprs else _notation(value, has_hint=name not in plain)
        except _NotWritableError as error:
            raise _NotWritableError(f"{home}: {name}: {error}") from None
    options = {
        name: value
        for name, value in kwargs.items()
        if name not in names and name not in _NOT_OPTIONS and isinstance(value, (str, int, float, bool))
    }
    return Signature(home, arguments, options)


def _home_of(function: Any, body: Any, folder: Path) -> str:
    module = sys.modules.get(body.__module__)
    names = [name for name, value in vars(module).items() if value is function] if module else []
    if not names:
        raise _NotWritableError(f"{body.__module__}:{body.__name__}: not to be found by its name in its module")
    if body.__module__ != "__main__":
        return f"{body.__module__}:{names[0]}"
    file = Path(body.__code__.co_filename).resolve()
    return f"{os.path.relpath(file, folder)}:{names[0]}"


def _parameters_without_hints(function: Any) -> set[str]:
    """Parameters that Triton is told not to specialise; the interpreter does not know."""
    while hasattr(function, "fn") and not hasattr(function, "params"):
        function = function.fn
    return {parameter.name for parameter in getattr(function, "params", ()) if parameter.do_not_specialize}


def _notation(value: Any, *, has_hint: bool) -> Argument:
    """How Triton specialises a value (triton/runtime/jit.py)."""
    if value is None:
        return {"none": True}
    if isinstance(value, bool):
        return "u1"
    if isinstance(value, int):
        kind = "i32" if value in _INT32 else "i64" if value in _INT64 else "u64"
        if not has_hint:
            return kind
        return f"{kind}:1" if value == 1 else f"{kind}:16" if value % 16 == 0 else kind
    if isinstance(value, float):
        return "fp32"
    if hasattr(value, "data_ptr") and hasattr(value, "dtype"):
        dtype = str(value.dtype).removeprefix("torch.")
        names = [name for name, torch_name in POINTEES.items() if torch_name == dtype]
        if names:
            return f"*{names[0]}{':16' if has_hint and value.data_ptr() % 16 == 0 else ''}"
    raise _NotWritableError(f"a {type(value).__name__} cannot be written down; declare the kernel in a benchmark file")


def _constant(value: Any) -> Argument:
    import triton.language as tl

    value = getattr(value, "value", value) if isinstance(value, tl.constexpr) else value
    if value is None:
        return {"none": True}
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, tl.dtype):
        named = [name for name, known in vars(tl).items() if known is value]
        if named:
            return {"dtype": named[0]}
    if hasattr(value, "fn") and hasattr(value.fn, "__module__") and value.fn.__module__ != "__main__":
        return {"function": f"{value.fn.__module__}:{value.fn.__name__}"}
    raise _NotWritableError(f"a {type(value).__name__} cannot be written down; declare the kernel in a benchmark file")


def main(arguments: list[str]) -> None:
    """Args:
    arguments: The file, `--`, and what to run.
    """
    file, _, *command = arguments
    if not _has_gpu():
        os.environ.setdefault("TRITON_INTERPRET", "1")
    try:
        capture = Capture(Path(file))
    except SuiteError as error:
        sys.exit(f"roofwatch: {error}")
    capture.install()
    atexit.register(capture.write)
    if command[0] == "-m":
        sys.argv = command[1:]
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = command
        sys.path.insert(0, str(Path(command[0]).resolve().parent))
        runpy.run_path(command[0], run_name="__main__")


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


if __name__ == "__main__":
    main(sys.argv[1:])
