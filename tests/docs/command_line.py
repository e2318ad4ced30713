"""Check commands in documents without running them."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import takewhile
from typing import Any

import typer
import yaml
from typer.core import TyperGroup
from typer.main import get_command

from roofwatch.cli.main import app
from roofwatch.cli.static import DefaultCommandGroup
from tests.docs.markdown import ROOT

_MAKEFILE = (ROOT / "Makefile").read_text()
_BETWEEN_COMMANDS = {"|", "||", "&&", ";"}
_REDIRECTIONS = {">", ">>", "<"}
# typer has its own copy of click and names only this descendant of what parsing raises
_USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)=")


class UnknownCommandError(Exception):
    """A document shows what would not work."""


def verbs() -> dict[str, str]:
    """The verbs of the Makefile with what they say of themselves."""
    return dict(re.findall(r"(?m)^([a-z-]+):.*?## (.*)$", _MAKEFILE))


def commands() -> list[str]:
    """All commands of `roofwatch`, as `run` or `db status`."""
    return list(_leaves(_group(), ""))


def check_line(line: str) -> None:
    """Check every command of a line of shell.

    Raises:
        UnknownCommandError: a program, verb, option or path that is not known.
    """
    for words in _commands_of(line):
        program, *arguments = words
        checker = _PROGRAMS.get(program)
        if checker is None:
            raise UnknownCommandError(f"{line}: no document may need {program}")
        checker(arguments)


def check_make(arguments: Sequence[str]) -> None:
    for argument in arguments:
        variable = _ASSIGNMENT.match(argument)
        if variable and f"$({variable['name']})" not in _MAKEFILE:
            raise UnknownCommandError(f"make: the Makefile uses no variable {variable['name']}")
        if not variable and argument not in verbs():
            raise UnknownCommandError(f"make: no verb {argument}")


def check_roofwatch(arguments: Sequence[str]) -> None:
    """Let the real command line parse the arguments.

    Raises:
        UnknownCommandError: it refuses them.
    """
    command: Any = _group()
    rest = list(arguments)
    try:
        while isinstance(command, TyperGroup):
            options = list(takewhile(lambda argument: argument.startswith("-"), rest))
            if isinstance(command, DefaultCommandGroup) and not {*rest[:1]} & {*command.commands}:
                rest, options = [command.default_command, *rest], []
            context = command.make_context("roofwatch", [*options, *rest[len(options) :]])
            name, *rest = rest[len(options) :]
            command = command.get_command(context, name)
            if command is None:
                raise UnknownCommandError(f"roofwatch: no command {name}")
        command.make_context(command.name, rest)
    except _USAGE_ERROR as error:
        raise UnknownCommandError(f"roofwatch {' '.join(arguments)}: {error}") from None


def check_python(arguments: Sequence[str]) -> None:
    if list(arguments[:2]) != ["-m", "pytest"]:
        return
    markers = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["markers"]
    known = {marker.split(":")[0] for marker in markers}
    rest = iter(arguments[2:])
    for argument in rest:
        if argument == "-m" and (marker := next(rest)) not in known:
            raise UnknownCommandError(f"pytest: no marker {marker}")
        if argument in {"-n", "-k"}:
            next(rest)
        if not argument.startswith("-") and not (ROOT / argument.split("::")[0]).exists():
            raise UnknownCommandError(f"pytest: no file or folder {argument}")


def check_docker(arguments: Sequence[str]) -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    if list(arguments[:2]) != ["compose", "run"]:
        raise UnknownCommandError(f"docker {' '.join(arguments)}: make has verbs for all but `docker compose run`")
    position = next(index for index, argument in enumerate(arguments) if argument in services)
    check_roofwatch(arguments[position + 1 :])


def check_git(arguments: Sequence[str]) -> None:
    for path in arguments[1:]:
        if not (ROOT / path).exists():
            raise UnknownCommandError(f"git: no file or folder {path}")


def _anything(_: Sequence[str]) -> None:
    """For the tools of every system, of which nothing here can be out of date."""


_PROGRAMS: Mapping[str, Callable[[Sequence[str]], None]] = {
    "make": check_make,
    "roofwatch": check_roofwatch,
    "python": check_python,
    "docker": check_docker,
    "git": check_git,
    "python3": _anything,
    ".": _anything,
    "build/fresh/bin/pip": _anything,
    "pip": _anything,
    "sed": _anything,
    "install": _anything,
}


def _commands_of(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    skip = False
    for word in [*lexer, ";"]:
        if word in _BETWEEN_COMMANDS:
            if words:
                yield words
            words = []
        elif skip or word in _REDIRECTIONS:
            skip = not skip
        elif words or not _ASSIGNMENT.match(word):
            words.append(word)


@cache
def _group() -> TyperGroup:
    command = get_command(app)
    assert isinstance(command, TyperGroup)
    return command


def _leaves(group: TyperGroup, prefix: str) -> Iterator[str]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from _leaves(command, f"{prefix}{name} ")
        elif isinstance(group, DefaultCommandGroup) and name == group.default_command:
            yield prefix.rstrip()
        else:
            yield f"{prefix}{name}"
