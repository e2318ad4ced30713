"""Markdown for GitHub, safe against the contents of records, and cut to the length that can be posted. Pure.

Everything from a record is put into code spans, where GitHub renders neither HTML nor Markdown and links neither
mentions nor issues; what could end the span or the table cell is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roofwatch.ci.message import visible

_REPLACED = str.maketrans({"`": "'", "|": "¦"})
_MAX_NAMES = 10


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


def count_of(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def listed(names: Iterable[str]) -> str:
    """The first names, and how many more there are."""
    every = list(names)
    more = f" and {len(every) - _MAX_NAMES} more" if len(every) > _MAX_NAMES else ""
    return ", ".join(every[:_MAX_NAMES]) + more


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table; the cells are Markdown already."""
    return [_row(columns), "|" + " --- |" * len(columns), *map(_row, rows)]


def folded(summary: str, lines: Sequence[str]) -> list[str]:
    """Lines behind a summary that opens on a click."""
    return [f"<details><summary>{summary}</summary>", "", *lines, "", "</details>"]


def join_sections(opening: list[str], sections: Sequence[Section], *, max_bytes: int, whole_url: str | None) -> str:
    """A document of an opening and sections; rows that are too many are cut from the end and counted.

    Args:
        opening: Its first lines.
        sections: The most relevant first.
        max_bytes: Of the document.
        whole_url: Where all rows are. It goes into a Markdown link as it is.
    """

    def cut_line(count: int) -> str:
        whole = f" [All of them]({whole_url})" if whole_url else ""
        return f"_{count_of(count, 'more row')} cut to keep this comment short._{whole}"

    lines = list(opening)
    cut_size = _size(["", cut_line(10**9)])
    room = max_bytes - _size(lines) - cut_size
    cut_count = 0
    for section in sections:
        frame = _size(["", *_section_lines(section, ())]) + cut_size
        if frame > room:
            cut_count += len(section.rows)
            continue
        room -= frame
        kept: list[Sequence[str]] = []
        for row in section.rows:
            room -= _size([_row(row)])
            if room < 0:
                break
            kept.append(row)
        room = max(room, 0)
        left = len(section.rows) - len(kept)
        lines += ["", *_section_lines(section, kept, cut_line(left) if left else None)]
    if cut_count:
        lines += ["", cut_line(cut_count)]
    return "\n".join(lines) + "\n"


def _section_lines(section: Section, rows: Sequence[Sequence[str]], cut_line: str | None = None) -> list[str]:
    body = [*([section.text, ""] if section.text else []), *table(section.columns, rows)]
    if cut_line is not None:
        body += ["", cut_line]
    return folded(section.heading, body) if section.is_folded else [f"#### {section.heading}", "", *body]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _size(lines: Sequence[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)
