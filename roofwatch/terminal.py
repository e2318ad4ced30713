"""What commands print: tables and progress for people, JSON for machines, one line for an error."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from roofwatch.collector.run import OnProgress, Progress

_EXPECTED_ERRORS = {
    # by name, so that saying "no such file" does not load SQLAlchemy
    "CollectorError",
    "StoreError",
    "ServeError",
    "SettingsError",
    "SpecError",
    "DashboardError",
    "DemoError",
    "OutputError",
    "BaselineError",
    "NoiseFloorError",
    "GitHubError",
    "AlertError",
}


class OutputError(Exception):
    """What a command made cannot be written."""


def is_expected(error: Exception) -> bool:
    """Whether an error is one that its message fully explains."""
    return any(kind.__name__ in _EXPECTED_ERRORS for kind in type(error).__mro__)


def fail(message: str, *, exit_status: int = 2) -> NoReturn:
    """Print one line on standard error and leave."""
    print_error(message)
    raise SystemExit(exit_status)


def print_error(message: str) -> None:
    """Print one line on standard error."""
    prefix = "\x1b[1;31mroofwatch:\x1b[0m" if sys.stderr.isatty() and "NO_COLOR" not in os.environ else "roofwatch:"
    try:
        print(f"{prefix} {one_line(message)}", file=sys.stderr)
    except OSError:
        silence(2)  # what is left to tell is the exit status


def silence(stream: int) -> None:
    """Have what is printed from now on, and what could not be until now, go nowhere: 1 or 2, as the system counts."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream)
    os.close(nowhere)


def stop_on_sigterm() -> None:
    """Let SIGTERM unwind the stack as Ctrl-C does, so that workers and servers are ended."""

    def interrupt(_signal: int, _frame: object) -> NoReturn:
        raise SystemExit(143)

    signal.signal(signal.SIGTERM, interrupt)


def print_table(table: Table) -> None:
    console(to_stderr=False).print(table)


def print_note(text: str) -> None:
    """Print lines, whatever of others stands in them."""
    console(to_stderr=False).print(_lines(text), markup=False, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Print a value of ours, dataclasses and pydantic documents included, as one JSON document."""
    sys.stdout.write(json_text(value))


def json_text(value: Any) -> str:
    """A value of ours, dataclasses and pydantic documents included, as one JSON document."""
    import orjson

    text = orjson.dumps(value, default=_plain, option=orjson.OPT_INDENT_2).decode()
    # JSON lets control characters beyond ASCII and marks of direction stand in strings: escaped they drive no terminal
    return "\n".join(line if line.isprintable() else _escaped(line) for line in text.split("\n")) + "\n"


def write_text(path: Path, text: str) -> None:
    """Write a text file.

    Raises:
        OutputError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from None


def console(*, to_stderr: bool = True) -> Console:
    """A console; wide enough for tables where the output is not a terminal."""
    from rich.console import Console

    class InertConsole(Console):
        """Whatever stands in a cell of a table is text: `[red]`, `:fire:` and what drives a terminal too."""

        def render_str(self, text: str, **how: Any) -> Text:
            return super().render_str(_lines(text), **how)

    stream = sys.stderr if to_stderr else sys.stdout
    width = None if stream.isatty() else 160
    return InertConsole(stderr=to_stderr, width=width, highlight=False, emoji=False, markup=False)


@contextmanager
def progress(title: str) -> Iterator[OnProgress]:
    """Show progress on standard error: a bar on a terminal, and where the output is collected what is to stay alone."""
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        SpinnerColumn(),
        TextColumn("{task.fields[title]}", markup=False),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    shown = console()
    with Bar(*columns, console=shown, transient=True, disable=not shown.is_terminal) as bar:
        task = bar.add_task("starting", title=title, total=None)

        def show(now: Progress) -> None:
            if now.is_to_stay:
                shown.print(_lines(now.text), markup=False, soft_wrap=True)
            else:
                bar.update(task, completed=now.done, total=now.total or None, description=one_line(now.text))

        yield show


def _lines(text: str) -> str:
    return "\n".join(_inert(line.expandtabs()) for line in text.split("\n"))


def _escaped(line: str) -> str:
    """A line of JSON that says the same in characters that can be printed."""
    return "".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in line)


def _plain(value: Any) -> Any:
    from pydantic import BaseModel

    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def printable(text: str, *, style: str = "") -> Text:
    """Text of a user's or a record's for a table: never markup, no control characters."""
    from rich.text import Text

    return Text(_inert(text), style=style)


def one_line(text: str) -> str:
    """Text of others as one line, without control characters."""
    return _inert(" ".join(text.split()))


def _inert(text: str) -> str:
    """Text of others without the control characters that could drive a terminal. As `roofwatch.ci.message` has
    it, which
    cannot be had before it is known that `ci` is ours.
    """
    return "".join(character if character.isprintable() else "�" for character in text)
