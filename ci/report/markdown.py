"""Markdown for GitHub, safe against untrusted text, and cut to the length that can be posted. Pure.

Everything from a record is put into code spans, where GitHub renders neither HTML nor Markdown and links neither
mentions nor issues; what could end the span or the table cell is replaced.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from roofwatch.ci.messages import on_one_line

_REPLACED = str.maketrans({"`": "'", "|": "¦"})
_MAX_NAMES = 10


@dataclass(frozen=True)
class Section:
    """A table with its heading, the most relevant row first."""

    heading: str
    rows: Sequence[Mapping[str, str]]
    """Markdown by column; all rows have the same columns."""
    is_folded: bool = False
    text: str | None = None


def code(text: str, *, limit: int = 160) -> str:
    """Turn untrusted text into one code span, cut to `limit` characters."""
    return f"`{plain(text, limit=limit).translate(_REPLACED) or ' '}`"


def plain(text: str, *, limit: int = 160) -> str:
    """Turn untrusted text into one printable line for places that render no Markdown."""
    line = on_one_line(text)
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def count_of(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def listed(names: Iterable[str]) -> str:
    """List the first names, and how many more there are."""
    every = list(names)
    more = f" and {len(every) - _MAX_NAMES} more" if len(every) > _MAX_NAMES else ""
    return ", ".join(every[:_MAX_NAMES]) + more


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Write the lines of a table whose cells are Markdown."""
    return [_row(columns), "|" + " --- |" * len(columns), *map(_row, rows)]


def folded(summary: str, lines: Sequence[str]) -> list[str]:
    """Write lines behind a summary that opens on a click."""
    return [f"<details><summary>{summary}</summary>", "", *lines, "", "</details>"]


def join_sections(opening: list[str], sections: Sequence[Section], *, max_bytes: int, whole_url: str | None) -> str:
    """Write a document; rows that do not fit are cut from the end and counted.

    Args:
        opening: Its first lines.
        sections: The most relevant first.
        max_bytes: Size limit in UTF-8.
        whole_url: Page with all rows, for a Markdown link.
    """

    def cut_line(count: int) -> str:
        link = f" [All of them]({whole_url})" if whole_url else ""
        return f"_{count_of(count, 'more row')} cut to keep this comment short._{link}"

    lines, cut_count = list(opening), 0
    reserve = _size(["", cut_line(10**9)])
    free = max_bytes - _size(lines) - reserve
    for section in sections:
        free_for_rows = free - _size(["", *_section_lines(section, ())]) - reserve
        if free_for_rows < 0:
            cut_count += len(section.rows)
            continue
        kept_count = 0
        for row in section.rows:
            size = _size([_row(row.values())])
            if size > free_for_rows:
                break
            free_for_rows -= size
            kept_count += 1
        free = free_for_rows
        missing = len(section.rows) - kept_count
        kept = section.rows[:kept_count]
        lines += ["", *_section_lines(section, kept, cut_line(missing) if missing else None)]
    if cut_count:
        lines += ["", cut_line(cut_count)]
    return "\n".join(lines) + "\n"


def _section_lines(section: Section, rows: Sequence[Mapping[str, str]], cut_line: str | None = None) -> list[str]:
    lines = table(list(section.rows[0]), [list(row.values()) for row in rows])
    body = [*([section.text, ""] if section.text else []), *lines]
    if cut_line is not None:
        body += ["", cut_line]
    return folded(section.heading, body) if section.is_folded else [f"#### {section.heading}", "", *body]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _size(lines: Sequence[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)
