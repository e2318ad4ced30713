"""Markdown for a comment on GitHub, safe against what records say.

Everything that comes from a record is put into code spans, where GitHub renders neither HTML nor Markdown and links
neither mentions nor issues; what could end the span or the table cell is replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from roofwatch.ci.message import visible

_REPLACED = str.maketrans({"`": "'", "|": "¦"})


@dataclass(frozen=True)
class Section:
    """A table with its heading; `rows` in order of relevance, so that it can be cut."""

    heading: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    is_folded: bool = False
    text: str | None = None


def code(text: str, *, limit: int = 160) -> str:
    """Foreign text as one code span on one line, cut to `limit` characters."""
    return f"`{plain(text, limit=limit).translate(_REPLACED) or ' '}`"


def plain(text: str, *, limit: int = 160) -> str:
    """Foreign text on one line, cut to `limit` characters, for where it is shown as it is; never for Markdown.

    Control characters and invisible ones, among them those that reverse the direction of writing, become `�`.
    """
    line = " ".join(text.split())
    if len(line) > limit:
        line = line[: limit - 1] + "…"
    return visible(line)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table; the cells are Markdown already."""
    return [table_row(columns), "|" + " --- |" * len(columns), *map(table_row, rows)]


def table_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def folded(summary: str, lines: Sequence[str]) -> list[str]:
    """Lines behind a summary that opens on a click."""
    return [f"<details><summary>{summary}</summary>", "", *lines, "", "</details>"]
