"""Check commands in documents without running them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import takewhile
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from roofwatch.cli.main import app
from roofwatch.commands.static import DefaultCommandGroup
from tests.docs.markdown import ROOT

_MAKEFILE = (ROOT / "Makefile").read_text()
_OTHERS = {
    "python",
    "python3",
    "pip",
    "pipx",
    "test",
    "build/fresh/bin/pip",
    "git",
    "sed",
    "install",
    ".",
    "cp",
    "curl",
    "pg_basebackup",
    "echo",
}
"""Further programs that documents may use."""
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
    for program, *arguments in _commands_of(line):
        if program == "make":
            check_make(arguments)
        elif program == "roofwatch":
            check_roofwatch(arguments)
        elif program == "docker" and arguments[:1] == ["compose"]:
            check_compose(arguments[1:])
        elif program not in _OTHERS:
            raise UnknownCommandError(f"{line}: no document may need {program}")
        for word in arguments:
            if word.startswith("tests/") and not (ROOT / word.split("::")[0]).exists():
                raise UnknownCommandError(f"{line}: no file or folder {word}")


def check_make(arguments: Sequence[str]) -> None:
    for argument in arguments:
        variable = _ASSIGNMENT.match(argument)
        if variable and f"$({variable['name']})" not in _MAKEFILE:
            raise UnknownCommandError(f"make: the Makefile uses no variable {variable['name']}")
        if not variable and argument not in verbs():
            raise UnknownCommandError(f"make: no verb {argument}")


def check_compose(arguments: Sequence[str]) -> None:
    """Check what runs in a container of our image; tests/test_compose.py runs the commands of
    Compose themselves.
    """
    if arguments[:2] == ["run", "--rm"] and arguments[2] != "gpu-runner":
        check_roofwatch(arguments[3:])
    elif arguments[:1] == ["exec"] and "roofwatch" in arguments:
        check_roofwatch(arguments[arguments.index("roofwatch") + 1 :])
    elif arguments[0] not in {"cp", "exec", "logs", "ps", "run", "stop", "up"}:
        raise UnknownCommandError(f"docker compose: no document needs {arguments[0]}")


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
