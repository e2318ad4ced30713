"""What people write on a command line, and click has no word for."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from typer.core import TyperCommand, TyperGroup

_VERSION = re.compile(r"\d+\.\d+[\w.]*")


class DefaultCommandGroup(TyperGroup):
    """A group whose first command is meant where none is named: `static PATH` beside `static audit`."""

    default_command = "compile"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in self.commands:
            args = [self.default_command, *args]
        return super().parse_args(ctx, args)


class CommandWithJsonFile(TyperCommand):
    """Takes `--json` alone, and `--json FILE.json` for writing it there."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, followed_by(args, "--json", lambda word: word.endswith(".json"), "--json-file"))


class CommandWithVersions(TyperCommand):
    """Takes `--triton 3.6.0 3.7.1` for `--triton 3.6.0 --triton 3.7.1`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        said: list[str] = []
        for word in args:
            is_one_more = said[-2:-1] == ["--triton"] and _VERSION.fullmatch(word)
            said += ["--triton", word] if is_one_more else [word]
        return super().parse_args(ctx, said)


def followed_by(args: list[str], option: str, is_value: Callable[[str], bool], instead: str) -> list[str]:
    """The arguments with another option in place of one that a value of its own follows."""
    return [
        instead if word == option and index + 1 < len(args) and is_value(args[index + 1]) else word
        for index, word in enumerate(args)
    ]
