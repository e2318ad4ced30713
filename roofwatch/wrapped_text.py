"""Identifiers in a table: they wrap after a slash or a comma, so that no name is broken; and the
widths of columns that leave room for it.
"""

import re
from typing import Any

from rich.console import Console, ConsoleOptions
from rich.containers import Lines
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

_PIECE = re.compile(
    r"""(?:
        [^/,\s]
        | ,(?=\d)  # within a number
        | (?<=\d)[ ](?=(?:ns|µs|ms|s|B|KiB|MiB|GiB)\b)  # before a unit
        | (?<=%)[ ](?=to[ ][-+\d]) | (?<=%[ ]to)[ ](?=[-+\d])  # within an interval
    )*(?:[/\s]|,(?!\d))?""",
    re.VERBOSE,
)


class WrappedText(Text):
    """Text that wraps after spaces, slashes and commas."""

    def wrap(self, console: Console, width: int, **how: Any) -> Lines:
        if how.get("no_wrap"):
            return super().wrap(console, width, **how)
        lines = Lines()
        for line in self.split(allow_blank=True):
            for part in line.divide(_breaks(line.plain, width)):
                part.rstrip()
                # a piece that is longer than the column is still broken
                lines.extend(part.wrap(console, width, **how))
        return lines

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        measured = super().__rich_measure__(console, options)
        longest = max((len(piece) for piece in _PIECE.findall(self.plain)), default=0)
        return Measurement(min(longest, measured.maximum), measured.maximum)


def _breaks(text: str, width: int) -> list[int]:
    """Offsets at which a text is broken into lines of at most a width, between its pieces."""
    breaks = []
    line_start = 0
    for match in _PIECE.finditer(text):
        ends_beyond = len(match.group().rstrip()) + match.start() - line_start > width
        if ends_beyond and match.start() > line_start:
            breaks.append(match.start())
            line_start = match.start()
    return breaks


def wrapped(text: Text) -> WrappedText:
    """The text, which wraps between the parts of its identifiers."""
    identifiers = WrappedText(
        text.plain,
        style=text.style,
        justify=text.justify,
        overflow=text.overflow,
    )
    identifiers.copy_styles(text)
    return identifiers


def fit_columns(table: Table, width: int) -> bool:
    """Set the widths of columns so that a table of this width breaks no name.

    rich narrows the widest column first, whether or not its names fit then.

    Returns:
        Whether the names fit; if not, the table is unchanged.
    """
    # each column has a space on both sides and a border
    available = width - 3 * len(table.columns) - 1
    contents = [lines_of(column) for column in table.columns]
    longest = [max(map(len, lines), default=0) for lines in contents]
    widths = [least_width(column) for column in table.columns]
    if sum(longest) <= available:
        return True
    if sum(widths) > available:
        return False
    for _ in range(available - sum(widths)):
        narrow = [position for position, size in enumerate(longest) if widths[position] < size]
        # the one that would take the most lines
        widths[max(narrow, key=lambda position: longest[position] / widths[position])] += 1
    for column, column_width in zip(table.columns, widths, strict=True):
        column.width = column_width
    return True


def least_width(column: Column) -> int:
    """The width at which no name and no number of a column is broken."""
    lines = lines_of(column)
    if column.justify == "right":
        return max(map(len, lines), default=1)
    # a heading stays on one line
    return max(_longest_piece(lines), len(str(column.header)))


def lines_of(column: Column) -> list[str]:
    lines: list[str] = []
    for cell in (column.header, *column.cells):
        lines += str(cell).splitlines()
    return lines


def _longest_piece(lines: list[str]) -> int:
    pieces = _PIECE.findall(" ".join(lines))
    return max(1, *(len(piece.rstrip()) for piece in pieces))
