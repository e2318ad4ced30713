"""Print tables, notes, progress, JSON and errors."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from roofwatch.ci.messages import on_one_line, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from roofwatch.collector.runs.run_plan import OnProgress, Progress

EXIT_WRONG = 1
"""Exit status of a regression or a failure."""
EXIT_CANNOT = 2
"""Exit status if nothing could be decided or run."""
PROGRESS_VARIABLE = "ROOFWATCH_PROGRESS"
_STEP_PAUSE_S = 2.0
"""Between two lines of steps."""
_MAX_SUMMARY_LINES = 40
_EXPECTED_ERRORS = {
    # names, because importing the classes would load SQLAlchemy
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
    "ForgeError",
    "AlertError",
}


class OutputError(Exception):
    """Output cannot be written."""


def is_expected(error: Exception) -> bool:
    """Whether the message alone explains the error."""
    return any(kind.__name__ in _EXPECTED_ERRORS for kind in type(error).__mro__)


def fail(message: str, *, exit_status: int = 2) -> NoReturn:
    """Print one line on standard error and exit."""
    print_error(message)
    raise SystemExit(exit_status)


def print_error(message: str) -> None:
    """Print one line on standard error."""
    prefix = "roofwatch:"
    if sys.stderr.isatty() and "NO_COLOR" not in os.environ:
        prefix = f"\x1b[1;31m{prefix}\x1b[0m"
    try:
        print(f"{prefix} {on_one_line(message)}", file=sys.stderr)
    except OSError:
        silence(2)  # only the exit status remains


def silence(fd: int) -> None:
    """Discard what is buffered for and written to standard output (1) or standard error (2)."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, fd)
    os.close(devnull)


def stop_on_sigterm() -> None:
    """Exit on SIGTERM as on Ctrl-C, which stops workers and servers."""

    def interrupt(_signal: int, _frame: object) -> NoReturn:
        raise SystemExit(143)

    signal.signal(signal.SIGTERM, interrupt)


def make_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
    left_column_count: int | None = None,
    omit_empty: bool = False,
) -> Table:
    """Make a table for `print_table`, which shows cells as plain text, without markup and control
    characters.

    A cell of None is empty, and a `Text` has a style. The first `left_column_count` columns, by
    default all, are aligned left. `omit_empty` leaves out columns without a cell.
    """
    from rich.table import Table
    from rich.text import Text

    from roofwatch.console.wrapped_text import wrapped

    def to_text(cell: object) -> str | Text:
        if cell is None:
            return ""
        if isinstance(cell, Text):
            return wrapped(cell)
        return str(cell)

    table = Table(title=title, title_justify="left", header_style="bold")
    listed = list(rows)
    if left_column_count is None:
        left_column_count = len(columns)
    shown_positions: list[int] = []
    for position, column in enumerate(columns):
        if omit_empty and all(row[position] is None for row in listed):
            continue
        shown_positions.append(position)
        justify: Literal["left", "right"] = "left" if position < left_column_count else "right"
        table.add_column(column, justify=justify, overflow="fold")
    for row in listed:
        # a row may have fewer cells than there are columns
        table.add_row(
            *(to_text(row[position]) for position in shown_positions if position < len(row))
        )
    return table


def sparkline(values: Sequence[float | None]) -> str:
    """Draw values as one character each, from the smallest to the largest; None is a gap."""
    levels = ".:-=+*#" if console(to_stderr=False).options.ascii_only else "▁▂▃▄▅▆▇"
    numbers = [value for value in values if value is not None]
    low = min(numbers, default=0.0)
    spread = max(numbers, default=0.0) - low
    top = len(levels) - 1

    def character(value: float | None) -> str:
        if value is None:
            return " "
        if not spread:
            return levels[round(0.5 * top)]
        return levels[round((value - low) / spread * top)]

    return "".join(map(character, values))


def is_debugging() -> bool:
    """Whether the command line asks for tracebacks."""
    return "--debug" in sys.argv[1:]


def print_result(document: Any, *parts: Table | str, as_json: bool) -> None:
    """Print the result of a command: tables and lines for people, or a document as JSON, which has
    the lines as its `summary`.
    """
    if as_json:
        if isinstance(document, dict) and "summary" not in document:
            document = {"summary": _summary_of(parts), **document}
        print_json(document)
        return
    for part in parts:
        if isinstance(part, str):
            print_note(part)
        else:
            print_table(part)


def _summary_of(parts: Sequence[Table | str]) -> str:
    lines = "\n".join(part for part in parts if isinstance(part, str)).splitlines()
    if len(lines) > _MAX_SUMMARY_LINES:
        rest_count = len(lines) - _MAX_SUMMARY_LINES
        lines = [*lines[:_MAX_SUMMARY_LINES], f"and {rest_count} more lines"]
    return "\n".join(visible(line) for line in lines)


def print_table(table: Table) -> None:
    from roofwatch.console.narrow_tables import lay_out

    if table.row_count:
        terminal = console(to_stderr=False)
        for part in lay_out(table, terminal.width):
            terminal.print(part)
    else:
        print_note(f"{table.title}: none" if table.title else "none")


def print_note(text: str) -> None:
    """Print lines of untrusted text."""
    console(to_stderr=False).print(text, soft_wrap=True)


def print_json(value: Any) -> None:
    sys.stdout.write(json_text(value))


def json_text(value: Any) -> str:
    """Convert dataclasses and pydantic models to one JSON document."""
    import orjson

    text = orjson.dumps(value, default=_plain, option=orjson.OPT_INDENT_2).decode()
    # JSON allows some control characters in strings, which could drive a terminal
    return "\n".join(map(_escaped, text.split("\n"))) + "\n"


def write_text(path: Path, text: str) -> None:
    """Write a text file.

    Raises:
        OutputError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from None


def print_or_write(text: str, path: Path | None) -> None:
    """Print a text as it is, or write it to a file and name the file.

    Raises:
        OutputError: the file cannot be written.
    """
    if path is None:
        print(text, end="")
    else:
        write_text(path, text)
        print_note(f"written: {path}")


def console(*, to_stderr: bool = True) -> Console:
    """Make a console, 160 columns wide if the output is not a terminal."""
    from rich.console import Console

    from roofwatch.console.wrapped_text import wrapped

    class InertConsole(Console):
        """Treats table cells as plain text, without markup, emoji or control characters."""

        def render_str(self, text: str, **how: Any) -> Text:
            lines = [visible(line.expandtabs()) for line in text.split("\n")]
            return wrapped(super().render_str("\n".join(lines), **how))

    stream = sys.stderr if to_stderr else sys.stdout
    width = None if stream.isatty() else 160
    return InertConsole(
        stderr=to_stderr,
        width=width,
        highlight=False,
        emoji=False,
        markup=False,
    )


@contextmanager
def progress(title: str) -> Iterator[OnProgress]:
    """Show progress on standard error: on a terminal a bar and each result, else only lines marked
    to stay.

    With the environment variable ROOFWATCH_PROGRESS=lines, results and steps are lines, for a
    program that passes them on.
    """
    if os.environ.get(PROGRESS_VARIABLE) == "lines":
        yield _as_lines(title)
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.progress import Progress as Bar

    columns = (
        SpinnerColumn(),
        TextColumn("{task.fields[title]}", markup=False),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    terminal = console()
    with Bar(*columns, console=terminal, transient=True, disable=not terminal.is_terminal) as bar:
        task = bar.add_task("starting", title=title, total=None)

        def show(now: Progress) -> None:
            if now.is_result and not terminal.is_terminal:
                return
            if now.is_to_stay or now.is_result:
                terminal.print(now.text, soft_wrap=True)
            else:
                bar.update(
                    task,
                    completed=now.done,
                    total=now.total or None,
                    description=on_one_line(now.text),
                )

        yield show


def _as_lines(title: str) -> OnProgress:
    """Print each result, and steps between them once in a while."""
    printed_s = float("-inf")

    def show(now: Progress) -> None:
        nonlocal printed_s
        is_lasting = now.is_to_stay or now.is_result
        now_s = time.monotonic()
        if not is_lasting and now_s - printed_s < _STEP_PAUSE_S:
            return
        printed_s = now_s
        text = on_one_line(now.text)
        if not is_lasting:
            count = ""
            if now.total:
                count = f" {now.done}/{now.total}"
            text = f"{title}{count}: {text}"
        print(visible(text), file=sys.stderr, flush=True)

    return show


def _escaped(line: str) -> str:
    """Escape unprintable characters of a line of JSON."""
    if line.isprintable():
        return line
    return "".join(
        character if character.isprintable() else json.dumps(character)[1:-1] for character in line
    )


def _plain(value: Any) -> Any:
    from pydantic import BaseModel

    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
