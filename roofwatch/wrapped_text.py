"""Identifiers in a table: they wrap after a slash or a comma, so that no name is broken."""

import re
from typing import Any

from rich.console import Console, ConsoleOptions
from rich.containers import Lines
from rich.measure import Measurement
from rich.text import Text

_PIECE = re.compile(r"[^/,\s]*[/,\s]?")


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
