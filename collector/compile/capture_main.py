"""Runs a program and records how it launches jitted functions: `python capture_main.py FILE -- [-m]
PROGRAM ARGS`.

The launches are written as a benchmark file when the program ends. Without a GPU, kernels run in
Triton's interpreter.
"""

import atexit
import hashlib
import math
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from roofwatch.collector.accuracy.memory_guard import GUARD, MemoryWatch
from roofwatch.collector.compile.target_device import install_driver
from roofwatch.collector.compile.targets import DEFAULT_TARGETS
from roofwatch.collector.suite import CAPTURE_HEADER
from roofwatch.model.files import atomic_write

_IMPORTS = ("import triton.language as tl", "from roofwatch.spec import jit_launch, pointer")
# Arguments of `run` that are not options of the compilation.
_LAUNCH_ARGUMENTS = frozenset({"grid", "warmup"})
_IMPORT_PREFIXES = ("import ", "from ", "sys.path")


class _UnsupportedLaunchError(Exception):
    """The launch cannot be written down; the message says why."""


class Capture:
    """Adds launches to a captured benchmark file, one per line, and keeps those that it has."""

    def __init__(self, file: Path, program: Path) -> None:
        self._file = file
        self._program = program
        text = CAPTURE_HEADER
        # an earlier program has written it: its launches stay
        if file.exists():
            text = file.read_text(encoding="utf-8")
        captured_lines = text.removeprefix(CAPTURE_HEADER).splitlines()
        self._lines = set(filter(None, captured_lines))
        self._lines.update(_IMPORTS)
        self._known_count = len(self._launches)
        self._skipped: set[str] = set()
        self._is_within_launch = False

    @property
    def _launches(self) -> list[str]:
        return sorted(line for line in self._lines if not line.startswith(_IMPORT_PREFIXES))

    def install(self) -> None:
        """Record each launch of the functions that Triton makes from now on."""
        from triton.runtime.autotuner import Autotuner, Heuristics
        from triton.runtime.jit import JITFunction

        kinds: list[Any] = [Autotuner, Heuristics, JITFunction]
        # Triton then makes other objects of jitted functions
        if os.environ.get("TRITON_INTERPRET") == "1":
            from triton.runtime.interpreter import InterpretedFunction

            from roofwatch.collector.accuracy.corrected_interpreter import correct_interpreter

            correct_interpreter()
            Autotuner.run = _run_first_configuration  # the interpreter compiles nothing to tune
            kinds.append(InterpretedFunction)
            # what is left of this type is Gluon's, which the interpreter cannot run
            JITFunction.run = _run_nothing
        for kind in kinds:
            kind.run = self._recorded(kind.run)

    def write(self) -> None:
        """Write the benchmark file, and print a summary to standard error."""
        launches = self._launches
        # The path of a program's folder must be set before its module is imported.
        imports = sorted(
            self._lines.difference(launches),
            key=lambda line: (not line.startswith("sys.path"), line),
        )
        # those lines were sorted to the front
        if imports[0].startswith("sys.path"):
            imports.insert(0, "import sys")
        self._file.parent.mkdir(parents=True, exist_ok=True)
        text = "\n".join([CAPTURE_HEADER, *imports, "", *launches, ""])
        atomic_write(self._file, text.encode())
        new = len(launches) - self._known_count
        print(f"roofwatch: {len(launches)} launches in {self._file}, {new} new", file=sys.stderr)
        # importing a file of tests runs none of them
        if not new and self._program.name.startswith("test_"):
            print(
                f"roofwatch: {self._program} declares tests, and a plain run calls none: "
                f"give -m pytest {self._program}",
                file=sys.stderr,
            )
        for reason in sorted(self._skipped):
            print(f"roofwatch: skipped: {reason}", file=sys.stderr)

    def _recorded(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Note the arguments of the outermost launch, and run it."""

        def record_and_run(function: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_within_launch:  # an autotuner launches the function that it wraps
                return run(function, *args, **kwargs)
            self._is_within_launch = True
            try:
                self._lines |= _lines_of(
                    function=function,
                    args=args,
                    kwargs=kwargs,
                    folder=self._file.resolve().parent,
                )
            # the program goes on as without roofwatch
            except _UnsupportedLaunchError as error:
                self._skipped.add(str(error))
            try:
                return run(function, *args, **kwargs)
            finally:
                self._is_within_launch = False

        return record_and_run


def _run_nothing(self: Any, *_args: Any, **_kwargs: Any) -> None:
    name = self.fn.__name__
    print(f"roofwatch: {name} is recorded and not run: Gluon needs a GPU", file=sys.stderr)


def _run_first_configuration(self: Any, *args: Any, **kwargs: Any) -> Any:
    self.nargs = dict(zip(self.arg_names, args, strict=False))
    config = self.prune_configs(kwargs)[0]
    return self.fn.run(*args, **kwargs, **config.kwargs)


def _lines_of(
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    folder: Path,
) -> set[str]:
    """The lines of a benchmark file that import a function and declare a launch of it."""
    body, unspecialised = _unwrapped(function)
    module, name, lines = _imported(function, body, folder)
    constexprs: set[str] = set()
    for parameter, kind in body.__annotations__.items():
        if "constexpr" in str(kind):
            constexprs.add(parameter)
    code = body.__code__
    names = code.co_varnames[: code.co_argcount]
    values = dict(zip(names, args, strict=False))
    values.update({key: kwargs[key] for key in names if key in kwargs})
    arguments: list[str] = []
    for key, value in values.items():
        if key in constexprs:
            text = _constexpr(value, lines)
        else:
            text = _argument(value, is_specialised=key not in unspecialised)
        if text is None:
            raise _UnsupportedLaunchError(
                f"{module}.{name}: {key}: a {type(value).__name__} cannot be recorded; "
                "declare the kernel in a benchmark file"
            )
        arguments.append(f"{key!r}: {text}")
    options = _options(kwargs, names)
    launch = f"{module}.{name}, {{{', '.join(arguments)}}}, {options!r}"
    # The digest tells launches of one kernel apart, and is the same in the next run.
    digest = hashlib.sha256(launch.encode()).hexdigest()[:8]
    kernel = f"{name}_{digest}"
    return {*lines, f"{kernel} = jit_launch({kernel!r}, {launch})"}


def _unwrapped(function: Any) -> tuple[Any, set[str]]:
    """The Python function below autotuners and `jit`, and what is not specialised on the way."""
    unspecialised: set[str] = set()
    body = function
    while hasattr(body, "fn"):
        for parameter in getattr(body, "params", ()):
            if parameter.do_not_specialize:
                unspecialised.add(parameter.name)
        body = body.fn
    return body, unspecialised


def _options(kwargs: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Options of the compilation, such as `num_warps`, that can be written down."""
    options: dict[str, Any] = {}
    for key, value in kwargs.items():
        # an argument of the kernel that was given by name
        if key in names or key in _LAUNCH_ARGUMENTS:
            continue
        # a hook, for example, cannot be written down
        if isinstance(value, (str, int, float, bool)):
            options[key] = value
    return options


def _imported(function: Any, body: Any, folder: Path) -> tuple[str, str, set[str]]:
    """The module of a function, its name there, and the lines that import the module."""
    module = sys.modules.get(body.__module__)
    names: list[str] = []
    if module:
        names = [name for name, value in vars(module).items() if value is function]
    # made in a function, so no import can find it
    if not names:
        raise _UnsupportedLaunchError(
            f"{body.__module__}.{body.__name__} is not a global of its module"
        )
    # The program itself is no module: the benchmark file imports its file by name.
    if body.__module__ != "__main__":
        return body.__module__, names[0], {f"import {body.__module__}"}
    program = Path(body.__code__.co_filename).resolve()
    if not program.stem.isidentifier():
        raise _UnsupportedLaunchError(
            f"{program.name} cannot be imported: its name is not a Python name"
        )
    lines = {f"import {program.stem}"}
    # beside the benchmark file, an import finds it
    if program.parent != folder:
        relative = os.path.relpath(program.parent, folder)
        lines.add(f'sys.path.append(__file__.rpartition("/")[0] + {"/" + relative!r})')
    return program.stem, names[0], lines


def _argument(value: Any, *, is_specialised: bool) -> str | None:
    """A value that Triton specialises in the same way (triton/runtime/jit.py); None if there is
    none.
    """
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, int):
        # Triton compiles it as a constant
        if value == 1 and is_specialised:
            return "1"
        # Within and beyond 32 bits, Triton chooses `i32`, `i64` or `u64`.
        if -(2**31) <= value < 2**31:
            of_its_size = 16
        elif value < 2**63:
            of_its_size = 2**40
        else:
            of_its_size = 2**63
        if value % 16 == 0 and is_specialised:
            return str(of_its_size)
        return str(of_its_size + 1)
    # Triton specialises no float: any number does
    if isinstance(value, float):
        return "1.5"
    if not hasattr(value, "data_ptr"):
        return None
    dtype = str(value.dtype).removeprefix("torch.")
    # Triton assumes aligned loads for addresses that are multiples of 16.
    is_aligned = value.data_ptr() % 16 == 0 and is_specialised
    if is_aligned:
        return f"pointer({dtype!r})"
    return f"pointer({dtype!r}, aligned=False)"


def _constexpr(value: Any, lines: set[str]) -> str | None:
    """The text of a constexpr; adds the import that it needs to the lines."""
    import triton.language as tl

    # a default of the kernel's signature, for example
    if isinstance(value, tl.constexpr):
        value = value.value
    # `repr` gives a name that no module has
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if isinstance(value, tl.dtype):
        for name, member in vars(tl).items():
            if member is value:
                return f"tl.{name}"
        return None
    # A jitted function that is passed as an argument.
    module = getattr(getattr(value, "fn", None), "__module__", "__main__")
    # it cannot be imported from the program
    if module == "__main__":
        return None
    lines.add(f"import {module}")
    return f"{module}.{value.fn.__name__}"


def main(arguments: list[str]) -> None:
    """Run a program, given the benchmark file to write, `--`, the program and its arguments."""
    import torch

    file, _, *command = arguments
    if not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")
        # programs ask for the device while they are imported
        install_driver(DEFAULT_TARGETS[0])
    capture = Capture(Path(file), Path(command[0]))
    capture.install()
    # also for a program that raises or calls `sys.exit`
    atexit.register(capture.write)
    watch = MemoryWatch()
    atexit.register(_print_faults, watch)
    with GUARD.watching(watch):
        _run(command)


def _print_faults(watch: MemoryWatch) -> None:
    for fault in watch.faults:
        print(f"roofwatch: {fault.message}", file=sys.stderr)


def _run(command: list[str]) -> None:
    """Run a module or a file as Python itself does."""
    if command[0] == "-m":
        sys.argv = command[1:]
        # as `python -m` and `python FILE` do themselves
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = command
        sys.path.insert(0, str(Path(command[0]).resolve().parent))
        runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
