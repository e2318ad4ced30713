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
        piece_lengths = map(len, _PIECE.findall(self.plain))
        longest = max(piece_lengths, default=0)
        return Measurement(
            minimum=min(longest, measured.maximum),
            maximum=measured.maximum,
        )


def _breaks(text: str, width: int) -> list[int]:
    """Offsets at which a text is broken into lines of at most a width, between its pieces."""
    breaks: list[int] = []
    line_start = 0
    for match in _PIECE.finditer(text):
        piece_start = match.start()
        # a space at the end of a line takes no width
        piece_end = piece_start + len(match.group().rstrip())
        is_beyond = piece_end - line_start > width
        if is_beyond and piece_start > line_start:
            breaks.append(piece_start)
            line_start = piece_start
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
    longest = [_longest_line(column) for column in table.columns]
    widths = [least_width(column) for column in table.columns]
    if sum(longest) <= available:
        return True
    if sum(widths) > available:
        return False

    def line_count(position: int) -> float:
        return longest[position] / widths[position]

    # one by one, each remaining character goes to the column that would take the most lines
    for _ in range(available - sum(widths)):
        narrow = [position for position, size in enumerate(longest) if widths[position] < size]
        widest_need = max(narrow, key=line_count)
        widths[widest_need] += 1
    for column, column_width in zip(table.columns, widths, strict=True):
        column.width = column_width
    return True


def least_width(column: Column) -> int:
    """The width at which no name and no number of a column is broken."""
    # numbers are at the right
    if column.justify == "right":
        return max(1, _longest_line(column))
    # a heading stays on one line
    heading_length = len(str(column.header))
    return max(_longest_piece(lines_of(column)), heading_length)


def _longest_line(column: Column) -> int:
    return max(map(len, lines_of(column)), default=0)


def lines_of(column: Column) -> list[str]:
    """The lines of all cells of a column, and of its heading."""
    lines: list[str] = []
    for cell in (column.header, *column.cells):
        lines += str(cell).splitlines()
    return lines


def _longest_piece(lines: list[str]) -> int:
    pieces = _PIECE.findall(" ".join(lines))
    return max(1, *(len(piece.rstrip()) for piece in pieces))
