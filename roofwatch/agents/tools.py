"""The commands that agents may call, and how a call becomes a command line."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field
from typer.models import OptionInfo

from roofwatch.commands import measure, pair, profile, records, show, static


@dataclass(frozen=True)
class Tool:
    """A command that agents may call, with the options that they may give.

    No tool takes an option that names a file to write, a server to call or something to delete.
    """

    command: str
    function: Callable[..., None]
    options: str
    description: str = ""
    """Empty: what the command says of itself."""
    is_measuring: bool = True
    """It runs code of the repository: one such job at a time, without the server's token."""


_SELECTION = "kernel implementation tag"
TOOLS = {
    "list_kernels": Tool(
        command="list",
        function=measure.list_kernels,
        options="path",
        description="List the kernels of the repository, read from its source: those with a "
        "benchmark file, and those without. With a path: its kernels with their cases.",
    ),
    "propose": Tool(
        command="init --benchmark --yes",
        function=measure.init,
        options="function",
        description="Write a benchmark file for a function, or for all functions that launch a "
        "Triton kernel. Inputs are guessed, and tried; the reference is left to you. An existing "
        "file is never changed.",
    ),
    "check": Tool(
        "check", measure.check, "target case implementation device like reference runner"
    ),
    "static": Tool("static compile", static.static, f"path base {_SELECTION} targets"),
    "run": Tool(
        "run",
        measure.run,
        f"path {_SELECTION} targets static device preset blocks affected base resume runner",
    ),
    "ab": Tool(
        "ab",
        pair.ab,
        f"path base head {_SELECTION} targets static device preset blocks budget affected resume "
        "runner",
    ),
    "submit": Tool(
        "submit",
        pair.submit,
        "candidate spec rev kernel against entry case budget require_isolation runner",
    ),
    "diagnose": Tool(
        "diagnose", profile.diagnose, "case path record implementation targets device runner"
    ),
    "profile": Tool(
        "profile",
        profile.profile,
        "command after seconds warmup steps max_seconds end shapes stacks runner",
    ),
    "diff": Tool(
        command="diff",
        function=profile.diff,
        options="base head",
        description="Compare two profiles of a program: the step, modules and operators. Give the "
        "`folder` of the result of each.",
        is_measuring=False,
    ),
    "compare": Tool(
        command="compare",
        function=records.compare,
        options="base head project runner_class",
        is_measuring=False,
    ),
    "history": Tool(
        command="show series",
        function=show.series,
        options="project kernel metric case",
        is_measuring=False,
    ),
    "ingest": Tool(
        command="ingest",
        function=records.ingest,
        options="files",
        is_measuring=False,
    ),
    "regressions": Tool(
        command="show regressions",
        function=show.regressions,
        options="project state triage",
        is_measuring=False,
    ),
}
_BENCHMARK_RESOURCE = "the one of the resource roofwatch://benchmark-file"
_RENAMED = {"for": "seconds"}
"""Arguments whose flags have other names."""
OF_HISTORY = ("history", "regressions")
"""Tools that read the stored history of a project."""


def without_flags(text: str) -> str:
    """A text of the command line in the words of a tool: names of arguments, not of flags."""
    text = re.sub(r"; with --json[^.]*|; repeatable|; repeat to require several", "", text)
    text = text.replace("After --, the command", "The command")
    text = text.replace("the one of docs/tutorials/your-kernel.md", _BENCHMARK_RESOURCE)
    return re.sub(r"(?<![\w-])--([a-z][a-z-]*)", lambda flag: _argument_of(flag[1]), text)


def in_words_of_tools(document: Mapping[str, Any]) -> dict[str, Any]:
    """A result whose sentences name arguments; a command that repeats it is left out of them."""
    changed = dict(document)
    for name in ("reason", "summary"):
        if name in document:
            lines = document[name].splitlines()
            sentences = [line for line in lines if not line.strip().startswith("repeat: ")]
            changed[name] = without_flags("\n".join(sentences))
    if "notes" in document:
        changed["notes"] = [without_flags(note) for note in document["notes"]]
    return changed


def _argument_of(flag: str) -> str:
    return _RENAMED.get(flag, flag.replace("-", "_"))


def as_given(values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as the agent wrote them: paths as text."""
    texts: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, list):
            texts[name] = [str(item) if isinstance(item, Path) else item for item in value]
        else:
            texts[name] = str(value) if isinstance(value, Path) else value
    return texts


def has_benchmark_files(root: Path) -> bool:
    return next(root.glob("bench_*.py"), None) is not None


def described(parameter: inspect.Parameter) -> inspect.Parameter:
    """The parameter with the help of its option as a description; None, the default, leaves it to
    the command.
    """
    kind, info = get_args(parameter.annotation)
    default = None
    # without a path, the benchmark files of the repository are taken
    if parameter.name == "path":
        kind = kind | None
    elif parameter.default is parameter.empty:
        default = parameter.empty
    return parameter.replace(
        kind=inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[kind, Field(description=without_flags(info.help))],
        default=default,
    )


def words_of(parameter: inspect.Parameter, value: Any, root: Path) -> Iterator[tuple[bool, str]]:
    """The words of the command line that give a parameter a value, each with whether it is an
    option.
    """
    kind, info = get_args(parameter.annotation)
    # in an annotation, typer takes the first name for the default
    declared = [info.default, *(info.param_decls or ())]
    names = [name for name in declared if isinstance(name, str) and name.startswith("--")]
    # typer derives the name of an option from the parameter.
    first_name = names[0] if names else f"--{parameter.name}"
    on, _, off = first_name.replace("_", "-").partition("/")
    if isinstance(value, bool):
        # A flag without `--no-...` has no word for its default.
        name = on if value else off
        if name:
            yield True, name
    elif parameter.name == "command":
        yield from [(False, word) for word in _program(value, root)]
    elif value is not None:
        is_option = isinstance(info, OptionInfo)
        prefix = f"{on}=" if is_option else ""
        values = value if isinstance(value, list) else [value]
        for word in map(str, values):
            # A value such as `--output=...` would be an option of its own.
            if word.startswith("-"):
                raise ToolError(f"{parameter.name}: {word} looks like an option")
            # Only an option that takes a path may lead out of the repository.
            if not is_option or Path in (kind, *get_args(kind)):
                _check_within(word, root)
            yield is_option, prefix + word


def _check_within(path: str, root: Path) -> None:
    if not (root / path).resolve().is_relative_to(root):
        raise ToolError(f"{path}: outside of the repository; give a path below {root}")


def _program(command: list[str], root: Path) -> list[str]:
    """A command line that runs a Python file of the repository; others are refused."""
    if command and command[0].endswith(".py"):
        command = ["python", *command]
    match command:
        case ["python" | "python3", file, *_] if (
            not file.startswith("-") and (root / file).is_file()
        ):
            _check_within(file, root)
            return command
    raise ToolError("command: give python, a Python file of the repository, and its arguments")
