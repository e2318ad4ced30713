"""Commands that a runner can carry out instead: the options `--on` and `--priority`."""

import functools
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

RunnerClass = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="CLASS",
        help="Measure on a runner of this class, from the queue of server_url, not here.",
    ),
]
Priority = Annotated[
    Literal["high", "normal", "low"],
    typer.Option("--priority", help="With --on; high needs the scope admin."),
]
_OPTIONS = ("--on", "--priority")
_REVISIONS = ("base", "head", "rev", "branch")
"""Options that name a revision, such as a branch, which a runner does not have."""
_RANGE = "range"
_INPUTS = ("record", "records", "noise_floor")
"""Files and folders that a command reads; git may ignore them."""
_NEEDS_HISTORY = ("watch",)
_NEEDS_THIS_MACHINE = ("follow", "issues")
"""Options that work for ever, or with tokens, which no job has."""


def queueable(function: Callable[..., None]) -> Callable[..., None]:
    """Add `--on CLASS` to a command, which sends it and the work tree to a runner of that class.

    This machine then needs neither torch nor a device.
    """
    signature = inspect.signature(function, eval_str=True)

    @functools.wraps(function)
    def command(*, runner: str | None, priority: str, **arguments: Any) -> None:
        if runner is None:
            function(**arguments)
            return
        raise typer.Exit(_send(function.__name__, runner, priority, arguments))

    keyword = inspect.Parameter.KEYWORD_ONLY
    added = [
        inspect.Parameter("runner", keyword, default=None, annotation=RunnerClass),
        inspect.Parameter("priority", keyword, default="normal", annotation=Priority),
    ]
    parameters = [*signature.parameters.values(), *added]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


def _send(name: str, runner_class: str, priority: str, arguments: Mapping[str, Any]) -> int:
    from roofwatch.model.errors import SuiteError
    from roofwatch.model.queue import JobPriority
    from roofwatch.queue.client import RemoteCommand, run_on_runner
    from roofwatch.queue.service import QueueService
    from roofwatch.store.server import server_at, server_url

    for option in _NEEDS_THIS_MACHINE:
        if arguments.get(option):
            raise SuiteError(
                f"--{option} needs this machine; with --on, repeat the command for each round"
            )
    # as they were written: a command has many options, and the runner parses them as this did
    position = sys.argv.index(name)
    words = _without(sys.argv[position + 1 :], *_OPTIONS)
    shas: list[str] = []
    for option, revision in _commits_of(arguments).items():
        words = [f"--{option}={revision}", *_without(words, f"--{option}")]
        shas += revision.split("..")
    inputs = [arguments[key] for key in _INPUTS if arguments.get(key) is not None]
    command = RemoteCommand(
        words=(name, *words),
        revisions=tuple(shas),
        ignored_paths=tuple(path for path in inputs if path.exists()),
        has_history=name in _NEEDS_HISTORY,
        runner_class=runner_class,
        priority=JobPriority(priority),
    )
    return run_on_runner(QueueService(server_at(server_url(None))), command)


def _without(words: Sequence[str], *options: str) -> list[str]:
    """The words without some options and their values; what follows `--` is the program's."""
    remaining: list[str] = []
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if word == "--":
            return [*remaining, word, *waiting]
        if word in options:
            waiting.pop(0)
        elif word.partition("=")[0] not in options:
            remaining.append(word)
    return remaining


def _commits_of(arguments: Mapping[str, Any]) -> dict[str, str]:
    """The SHA of each revision that the command names, by option; of a range both, as A..B."""
    from roofwatch.collector.git import resolve_commit
    from roofwatch.configuration.arguments import repository_of
    from roofwatch.measurement.revisions import find_base

    path = arguments.get("path") or Path()
    commits: dict[str, str] = {}
    for option in _REVISIONS:
        revision = arguments.get(option)
        if revision is None:
            continue
        if option == "base":
            revision = find_base(path, revision, arguments.get("head"), os.environ)
        commits[option] = resolve_commit(repository_of(Path()), revision)
    ends = (arguments.get("commits") or "").split("..")
    # what is no range is refused by the command
    if len(ends) == 2 and all(ends):
        shas = [resolve_commit(repository_of(Path()), end) for end in ends]
        commits[_RANGE] = "..".join(shas)
    return commits
