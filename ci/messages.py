"""Messages that contain untrusted text: remarks, Markdown for GitHub, and the errors of delivering
them. Pure.

In Markdown, everything from a record is put into code spans, where GitHub renders neither HTML nor
Markdown and links neither mentions nor issues; what could end the span or the table cell is
replaced.
"""

import re
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

# plain http is safe only where no network is in between
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_MAX_NAME = 80
# would end a code span or a cell of a Markdown table
_REPLACED = str.maketrans({"`": "'", "|": "¦"})
_MAX_NAMES = 10
_MAX_OPEN_ROWS = 10
"""Further rows of an open section are folded."""
_MAX_LINE = 300
_LONG_WORD = re.compile(r"\S{21,}")
_BREAK = re.compile(r"(.{8,19}?[_./:-]|.{20})(?=..)")
"""Where a long word may break: after a separator if there is one."""


Row = tuple[str, ...]
"""Cells of a table, as Markdown."""


class ForgeError(Exception):
    """GitHub or GitLab refused a request or did not answer."""


class NotFoundError(ForgeError):
    """The object does not exist, or the token may not see it."""


class UncertainError(ForgeError):
    """It is unknown whether a request was carried out."""


class AlertError(Exception):
    """Alert rules or channels cannot be used; the message never contains an address."""


@dataclass(frozen=True)
class Remark:
    """A sentence with untrusted words kept apart, for the caller to quote."""

    template: str
    """Has one `{}` for each word."""
    words: tuple[str, ...] = ()
    """Untrusted words for the gaps of the template, in order."""

    def __str__(self) -> str:
        return self.quoted(str)

    def quoted(self, quote: Callable[[str], str]) -> str:
        """Fill the gaps with quoted words."""
        return self.template.format(*map(quote, self.words))


def join_remarks(separator: str, remarks: Iterable[Remark]) -> Remark:
    """Join remarks into one, with all their words."""
    templates: list[str] = []
    words: list[str] = []
    for remark in remarks:
        templates.append(remark.template)
        words.extend(remark.words)
    return Remark(separator.join(templates), tuple(words))


def may_carry_secrets(url: str) -> bool:
    """Return whether nobody can read what is sent there: https, or plain http to this machine."""
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:
        return False
    is_local = parts.scheme == "http" and parts.hostname in _LOOPBACK
    is_encrypted = parts.scheme == "https" and bool(parts.hostname)
    return is_local or is_encrypted


def visible(text: str) -> str:
    """Replace unprintable characters, such as terminal controls and bidirectional marks, by `�`."""
    # a control character could move what a reader sees
    return "".join(character if character.isprintable() else "�" for character in text)


def on_one_line(text: str) -> str:
    """Make the text visible and collapse white space to single blanks."""
    return visible(" ".join(text.split()))


def short_name(name: str) -> str:
    """Cut the name of a kernel at 80 characters."""
    if len(name) <= _MAX_NAME:
        return name
    shortened = name[: _MAX_NAME - 1]
    return f"{shortened}…"


# --- Markdown


@dataclass(frozen=True)
class Section:
    """A table, the most relevant row first."""

    title: str
    """Shown if it is folded."""
    columns: tuple[str, ...]
    rows: Sequence[Row]
    is_folded: bool = False
    """Whether a reader has to open it."""
    text: str | None = None


def code(text: str, *, limit: int = 160) -> str:
    """Turn untrusted text into one code span, cut to `limit` characters."""
    replaced = plain(text, limit=limit).translate(_REPLACED)
    # two backticks without anything between them begin a longer span
    return f"`{replaced or ' '}`"


def cell_code(text: str, *, limit: int = 160) -> str:
    """As `code`, for a cell of a table: a browser may break long words, and cuts no column."""
    span = code(text, limit=limit)
    text_of_span = span[1:-1]
    # a browser breaks a line only where it is allowed to
    marked = _LONG_WORD.sub(lambda word: _BREAK.sub(r"\1\0", word[0]), text_of_span)
    pieces = marked.split("\0")
    return "<wbr>".join(f"`{piece}`" for piece in pieces)


def code_block(text: str, *, most: int) -> list[str]:
    """Turn the last lines of untrusted text into a code block, which nothing in it can close."""
    last_lines = text.strip().splitlines()[-most:]
    lines = (visible(line)[:_MAX_LINE].replace("`", "'") for line in last_lines)
    return ["```text", *lines, "```"]


def plain(text: str, *, limit: int = 160) -> str:
    """Turn untrusted text into one printable line where no Markdown is rendered, cut after a clause
    if possible.
    """
    line = on_one_line(text)
    if len(line) <= limit:
        return line
    beginning = line[: limit - 1]
    end_of_clause = max(beginning.rfind("; "), beginning.rfind(". "))
    # a clause near the start would lose most of the text
    if end_of_clause > limit // 2:
        beginning = beginning[:end_of_clause]
    return f"{beginning}…"


def count_of(count: int, noun: str) -> str:
    """`1 case`, `2 cases`."""
    if count == 1:
        return f"{count} {noun}"
    return f"{count} {noun}s"


def listed(names: Iterable[str], most: int = _MAX_NAMES) -> str:
    """List the first names, and how many more there are."""
    all_names = list(names)
    text = ", ".join(all_names[:most])
    if len(all_names) > most:
        more_count = len(all_names) - most
        text += f" and {more_count} more"
    return text


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Write the lines of a table whose cells are Markdown."""
    rule = "|" + " --- |" * len(columns)
    return [_row(columns), rule, *map(_row, rows)]


def folded(summary: str, lines: Sequence[str]) -> list[str]:
    """Write lines behind a summary that opens on a click."""
    return [
        f"<details><summary>{summary}</summary>",
        "",
        *lines,
        "",
        "</details>",
    ]


def join_sections(
    opening: list[str],
    sections: Sequence[Section],
    closing: list[str],
    *,
    max_bytes: int,
    whole_url: str | None,
) -> str:
    """Write a document: open tables of at most ten rows, then what is folded, each table short
    enough for all to fit.

    The sections are the most relevant first. The closing lines stand between the open and the
    folded tables.
    """
    opened: list[Section] = []
    folds: list[Section] = []
    for section in sections:
        if section.is_folded:
            continue
        first_rows = section.rows[:_MAX_OPEN_ROWS]
        opened.append(replace(section, rows=first_rows))
        # what does not fit in an open table is folded away, not lost
        more = section.rows[_MAX_OPEN_ROWS:]
        if more:
            title = f"{len(more)} more: {section.title}"
            folds.append(
                Section(
                    title=title,
                    columns=section.columns,
                    rows=more,
                    is_folded=True,
                )
            )
    folds += [section for section in sections if section.is_folded]
    row_counts = (len(section.rows) for section in sections)
    row_limit = max(row_counts, default=0)
    while True:
        open_lines = _lines_of(opened, row_limit, whole_url)
        folded_lines = _lines_of(folds, row_limit, whole_url)
        lines = [
            *opening,
            *open_lines,
            "",
            *closing,
            *folded_lines,
        ]
        text = "\n".join(lines) + "\n"
        # the limit of a comment is in bytes
        if len(text.encode()) <= max_bytes or not row_limit:
            return text
        # by quarters: in few rounds, and with little cut in vain
        row_limit = row_limit * 3 // 4


def _lines_of(
    sections: Iterable[Section],
    row_limit: int,
    whole_url: str | None,
) -> Iterator[str]:
    for section in sections:
        yield from _section_lines(section, row_limit, whole_url)


def _section_lines(
    section: Section,
    row_limit: int,
    whole_url: str | None,
) -> list[str]:
    """Write a table, and how many rows were cut."""
    lines = []
    if section.text:
        lines = [section.text, ""]
    lines += table(section.columns, section.rows[:row_limit])
    cut_count = len(section.rows) - row_limit
    if cut_count > 0:
        link = ""
        if whole_url:
            link = f" [All of them]({whole_url})"
        count = count_of(cut_count, "more row")
        lines += ["", f"_{count} cut to keep this comment short._{link}"]
    if section.is_folded:
        lines = folded(section.title, lines)
    return ["", *lines]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
