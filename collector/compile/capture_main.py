"""Runs a program and records how it launches jitted functions: `python capture_main.py FILE -- [-m] PROGRAM ARGS`.

The signatures are written when the program ends. Without a GPU, kernels run in Triton's interpreter.
"""

from __future__ import annotations

import atexit
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from roofwatch.collector.compile.signature import TORCH_DTYPES, Argument, Signature, read_signatures, to_toml
from roofwatch.collector.errors import SuiteError
from roofwatch.collector.outbox.files import atomic_write

_LAUNCH_ARGUMENTS = frozenset({"grid", "warmup"})
_TRITON_NAMES = {dtype: name for name, dtype in TORCH_DTYPES.items()}


class _UnsupportedLaunchError(Exception):
    """No signature can describe the launch; the message says why."""


class Capture:
    """Adds launches to a signature file, and keeps the signatures that it has."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._signatures = {(one.function, one.digest): one for one in (read_signatures(file) if file.exists() else ())}
        self._known_count = len(self._signatures)
        self._skipped: set[str] = set()
        self._is_within_launch = False

    def install(self) -> None:
        """Record every launch of this process from now on."""
        from triton.runtime.autotuner import Autotuner, Heuristics
        from triton.runtime.jit import JITFunction

        kinds: list[Any] = [Autotuner, Heuristics, JITFunction]
        if os.environ.get("TRITON_INTERPRET") == "1":
            from triton.runtime.interpreter import InterpretedFunction

            Autotuner.run = _run_first_configuration  # the interpreter compiles nothing to tune
            kinds.append(InterpretedFunction)
        for kind in kinds:
            kind.run = self._recorded(kind.run)

    def write(self) -> None:
        """Write the signature file, and print a summary to standard error."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(self._file, to_toml(self._signatures.values()).encode())
        new = len(self._signatures) - self._known_count
        print(f"roofwatch: {len(self._signatures)} signatures in {self._file}, {new} new", file=sys.stderr)
        for reason in sorted(self._skipped):
            print(f"roofwatch: skipped: {reason}", file=sys.stderr)

    def _recorded(self, run: Callable[..., Any]) -> Callable[..., Any]:
        def record_and_run(function: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_within_launch:  # an autotuner launches the function that it wraps
                return run(function, *args, **kwargs)
            self._is_within_launch = True
            try:
                self._record(function, args, kwargs)
                return run(function, *args, **kwargs)
            finally:
                self._is_within_launch = False

        return record_and_run

    def _record(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            signature = _signature_of(function, args, kwargs, self._file.resolve().parent)
        except _UnsupportedLaunchError as error:
            self._skipped.add(str(error))
        else:
            self._signatures.setdefault((signature.function, signature.digest), signature)


def _run_first_configuration(self: Any, *args: Any, **kwargs: Any) -> Any:
    self.nargs = dict(zip(self.arg_names, args, strict=False))
    config = self.prune_configs(kwargs)[0]
    return self.fn.run(*args, **kwargs, **config.kwargs)


def _signature_of(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], folder: Path) -> Signature:
    body, unspecialised = function, set()
    while hasattr(body, "fn"):
        unspecialised |= {parameter.name for parameter in getattr(body, "params", ()) if parameter.do_not_specialize}
        body = body.fn
    qualified = _qualified_name(function, body, folder)
    constexprs = {name for name, kind in body.__annotations__.items() if "constexpr" in str(kind)}
    names = body.__code__.co_varnames[: body.__code__.co_argcount]
    given = {**dict(zip(names, args, strict=False)), **{name: kwargs[name] for name in names if name in kwargs}}
    arguments = {}
    for name, value in given.items():
        argument = _constexpr(value) if name in constexprs else _notation(value, has_hint=name not in unspecialised)
        if argument is None:
            raise _UnsupportedLaunchError(
                f"{qualified}: {name}: a signature cannot describe a {type(value).__name__}; declare the kernel in a "
                "benchmark file"
            )
        arguments[name] = argument
    options = {
        name: value
        for name, value in kwargs.items()
        if name not in {*names, *_LAUNCH_ARGUMENTS} and isinstance(value, (str, int, float, bool))
    }
    return Signature(function=qualified, arguments=arguments, options=options)


def _qualified_name(function: Any, body: Any, folder: Path) -> str:
    module = sys.modules.get(body.__module__)
    names = [name for name, value in vars(module).items() if value is function] if module else []
    if not names:
        raise _UnsupportedLaunchError(f"{body.__module__}:{body.__name__} is not a global of its module")
    if body.__module__ != "__main__":
        return f"{body.__module__}:{names[0]}"
    file = Path(body.__code__.co_filename).resolve()
    return f"{os.path.relpath(file, folder)}:{names[0]}"


def _notation(value: Any, *, has_hint: bool) -> Argument | None:
    """Return how Triton specialises a value (triton/runtime/jit.py)."""
    if value is None:
        return {"none": True}
    if isinstance(value, bool):
        return "u1"
    if isinstance(value, int):
        kind = "i32" if -(2**31) <= value < 2**31 else "i64" if value < 2**63 else "u64"
        hint = ":1" if value == 1 else ":16" if value % 16 == 0 else ""
        return f"{kind}{hint if has_hint else ''}"
    if isinstance(value, float):
        return "fp32"
    pointee = _TRITON_NAMES.get(str(getattr(value, "dtype", None)).removeprefix("torch."))
    if pointee is None or not hasattr(value, "data_ptr"):
        return None
    return f"*{pointee}{':16' if has_hint and value.data_ptr() % 16 == 0 else ''}"


def _constexpr(value: Any) -> Argument | None:
    import triton.language as tl

    value = value.value if isinstance(value, tl.constexpr) else value
    if value is None:
        return {"none": True}
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, tl.dtype):
        return next(({"dtype": name} for name, known in vars(tl).items() if known is value), None)
    if getattr(getattr(value, "fn", None), "__module__", "__main__") != "__main__":
        return {"function": f"{value.fn.__module__}:{value.fn.__name__}"}
    return None


def main(arguments: list[str]) -> None:
    """Run a program.

    Args:
        arguments: Signature file, `--`, program and its arguments.
    """
    import torch

    file, _, *command = arguments
    if not torch.cuda.is_available():
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


if __name__ == "__main__":
    main(sys.argv[1:])
