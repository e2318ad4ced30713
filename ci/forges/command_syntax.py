"""The syntax of commands in comments on a pull request."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from markdown_it import MarkdownIt

from roofwatch.ci.forges.acceptance import MAX_SERIES

COMMAND_PREFIX = "/roofwatch"
USAGE = (
    "`/roofwatch accept [--wrong-result] <reason>`, `/roofwatch rerun`, "
    "`/roofwatch run [<runner>] <commit>` or "
    "`/roofwatch bisect [<case> <implementation>] [on <runner>] [at <commit>]`"
)
WRONG_RESULT = "--wrong-result"
_MAX_REASON = 200
"""Characters."""
# becomes an argument of a workflow
_RUNNER = re.compile(r"[\w.-]{1,60}", re.ASCII)
# git's shortest abbreviation up to SHA-256
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


class Verb(StrEnum):
    ACCEPT = "accept"
    RERUN = "rerun"
    RUN = "run"
    BISECT = "bisect"


@dataclass(frozen=True)
class Command:
    verb: Verb
    rest: str = ""
    """The reason or the series."""
    runner: str = ""
    commit: str = ""
    wrong_results: bool = False
    """Whether an acceptance means wrong results too."""

    def naming(self, commit: str) -> str:
        """Write the command without its prefix, as one for that commit."""
        words = [str(self.verb)]
        if self.verb is Verb.BISECT:
            if self.rest:
                words.append(self.rest)
            if self.runner:
                words += ["on", self.runner]
            words += ["at", commit]
        else:
            if self.runner:
                words.append(self.runner)
            words.append(commit)
        return " ".join(words)


class CommandError(Exception):
    """A command cannot be parsed or has nothing to do; the text is Markdown."""


def commands_in(body: str) -> list[str]:
    """Return the lines that start with the prefix, if the first line does; code blocks and quotes
    do not count.
    """
    lines: list[str] = []
    for opening, inside in pairwise(MarkdownIt("commonmark").parse(body)):
        if opening.type == "paragraph_open" and opening.level == 0:
            lines += [line.strip() for line in inside.content.splitlines()]
    commands = [line for line in lines if line.split()[:1] == [COMMAND_PREFIX]]
    # a comment that only quotes a command is no command
    begins_with_one = body.lstrip("\r\n").startswith(COMMAND_PREFIX)
    if begins_with_one and commands[:1] == lines[:1]:
        return commands
    return []


def parse_command(line: str) -> Command:
    """Parse a command.

    Raises:
        CommandError: the command is not valid.
    """
    # the first word is the prefix; without a second one, the verb is empty
    all_words = [*line.split(), ""]
    verb, *words = all_words[1:]
    rest = " ".join(words).strip()
    if verb not in list(Verb):
        raise CommandError(f"unknown command; there are {USAGE}")
    wrong_results = verb == Verb.ACCEPT and words[:1] == [WRONG_RESULT]
    if wrong_results:
        rest = " ".join(words[1:]).strip()
    # a reason is what the next reader asks for
    if verb == Verb.ACCEPT and not rest:
        raise CommandError(f"a reason is missing: `{COMMAND_PREFIX} accept <reason>`")
    if verb == Verb.RERUN and rest:
        raise CommandError(f"`{COMMAND_PREFIX} rerun` takes no arguments")
    if verb == Verb.RUN:
        return _parse_run(rest)
    if verb == Verb.BISECT:
        return _parse_bisect(words)
    if verb == Verb.ACCEPT:
        rest = rest[:_MAX_REASON]
    return Command(
        Verb(verb),
        rest=rest,
        wrong_results=wrong_results,
    )


def _parse_run(rest: str) -> Command:
    """Read `run`, which may name a runner and a commit."""
    if _COMMIT.fullmatch(rest):
        runner = ""
        commit = rest
    else:
        runner, _, commit = rest.partition(" ")
    if not _is_valid(runner, _RUNNER) or not _is_valid(commit, _COMMIT):
        raise CommandError(
            f"name a label of the runner, and the commit that you reviewed: `{COMMAND_PREFIX} "
            f"run h100 0123abcd`"
        )
    return Command(
        Verb.RUN,
        runner=runner,
        commit=commit,
    )


def _parse_bisect(words: Sequence[str]) -> Command:
    """Read `bisect`, which may name a case, an implementation, a runner and a commit."""
    named = [word for word in words if word]
    options = {"on": "", "at": ""}
    # the case may have any words but these two at its end
    while len(named) > 1 and named[-2] in options:
        *named, option, value = named
        options[option] = value
    series = " ".join(named)
    has_valid_runner = _is_valid(options["on"], _RUNNER)
    is_valid = has_valid_runner and _is_valid(options["at"], _COMMIT)
    if len(series) > MAX_SERIES or not series.isprintable() or series.startswith("-"):
        is_valid = False
    if not is_valid:
        raise CommandError(
            "name a case and an implementation, and the commit that you reviewed: "
            f"`{COMMAND_PREFIX} bisect <case> <implementation> at 0123abcd`"
        )
    return Command(
        verb=Verb.BISECT,
        rest=series,
        runner=options["on"],
        commit=options["at"],
    )


def _is_valid(word: str, form: re.Pattern[str]) -> bool:
    return not word or form.fullmatch(word) is not None
