"""Show rows as a table, whose download has the raw values."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import pandas as pd
import streamlit as st

from roofwatch.ci.messages import on_one_line
from roofwatch.ci.report.step import signed_ns
from roofwatch.dashboard.wording import duration_text, energy_text
from roofwatch.model.metrics import format_bytes, format_ns

Key = TypeVar("Key")
Row = TypeVar("Row")
RowRead = TypeVar("RowRead", contravariant=True)

NO_VALUE = "–"
_WARNING = "background-color: rgba(213, 94, 0, 0.3)"
_ROWS_SHOWN = 25
_SCROLLED_PX = 900
"""Height of a table with more rows."""
_UNITS = {
    format_ns: "ns",
    signed_ns: "ns",
    duration_text: "ns",
    format_bytes: "bytes",
    energy_text: "J",
}
"""Unit of the values that a function writes."""


@dataclass(frozen=True)
class Column(Generic[RowRead]):
    """A column of a table."""

    title: str
    value: Callable[[RowRead], object]
    """Raw value of a row; None if it is not known."""
    write: Callable[[Any], str] | None = None
    """Text of a value that is not None."""
    help: str | None = None
    """Markdown."""
    link: str | None = None
    """Text of the links, if the values are addresses."""
    warn_above: float | None = None
    """Values above this are coloured."""

    @property
    def name(self) -> str:
        """Title in a downloaded file, with the unit of the values."""
        if self.write is None or self.write not in _UNITS:
            return self.title
        unit = _UNITS[self.write]
        return f"{self.title} ({unit})"

    @property
    def config(self) -> Any:
        if self.link is not None:
            return st.column_config.LinkColumn(
                self.title,
                help=self.help,
                display_text=self.link,
            )
        return st.column_config.Column(self.title, help=self.help)

    def read(self, row: RowRead) -> object:
        """Return the value of a row, its text on one line and without characters that
        reorder it.
        """
        value = self.value(row)
        if isinstance(value, str):
            return on_one_line(value)
        return value


class HasSubject(Protocol):
    """A row about one implementation of a case."""

    @property
    def case_id(self) -> str: ...

    @property
    def implementation(self) -> str: ...


SUBJECT: tuple[Column[HasSubject], ...] = (
    Column("case", lambda row: row.case_id),
    Column("implementation", lambda row: row.implementation),
)
"""The columns that say what a row is about."""


def frame_of(
    rows: Iterable[Row],
    columns: Iterable[Column[Row]],
    *,
    omit_empty: bool = False,
) -> pd.DataFrame:
    """Return the values, on request without columns in which no row has any."""
    rows = list(rows)
    cells: dict[str, list[object]] = {}
    for column in columns:
        values = [column.read(row) for row in rows]
        has_value = any(value not in (None, "") for value in values)
        if has_value or not omit_empty:
            cells[column.name] = values
    return pd.DataFrame(cells)


def grouped(
    rows: Iterable[Row],
    key: Callable[[Row], Key],
) -> dict[Key, list[Row]]:
    """Group rows by key, in order of appearance."""
    # a dict keeps the order in which the keys appeared
    groups: dict[Key, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


@dataclass(frozen=True)
class HtmlColumn(Generic[RowRead]):
    """A column of a table in HTML, whose cells escape text from records."""

    head: str
    cell: Callable[[RowRead], str]
    kind: str = ""
    """Its class in the style sheet."""
    help: str = ""


def html_table(
    rows: Iterable[Row],
    columns: Sequence[HtmlColumn[Row]],
    *,
    kind: str = "",
    attributes: Callable[[Row], str] | None = None,
) -> str:
    """Write one line per row.

    Args:
        rows: What the cells are written from.
        columns: From left to right.
        kind: Further class of the table in the style sheet.
        attributes: Attributes of a row's element, with a space before each.
    """
    heads = ""
    for column in columns:
        heads += f'<th scope=col class="{column.kind}" title="{column.help}">{column.head}</th>'
    lines: list[str] = []
    for row in rows:
        cells = ""
        for column in columns:
            content = column.cell(row)
            cells += f'<td class="{column.kind}">{content}</td>'
        of_row = ""
        if attributes is not None:
            of_row = attributes(row)
        lines.append(f"<tr{of_row}>{cells}</tr>")
    body = "".join(lines)
    return (
        f'<table class="rw-table {kind}"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def scrolled(table: str) -> str:
    """Let a wide table scroll in a box of its own, which the keyboard reaches."""
    return f"<div class=rw-scroll tabindex=0>{table}</div>"


def show_numbers(*numbers: tuple[str, str | int, str | None]) -> None:
    """Show numbers side by side, each with its title and a help text."""
    columns = st.columns(len(numbers))
    for column, (title, value, help_text) in zip(columns, numbers, strict=True):
        column.metric(
            title,
            value,
            border=True,
            help=help_text,
        )


def _warn_above(limit: float, value: object) -> str:
    if isinstance(value, float) and value > limit:
        return _WARNING
    return ""


def show_table(
    rows: Iterable[Row],
    *columns: Column[Row],
    if_empty: str | None = None,
    omit_empty: bool = False,
    key: str | None = None,
) -> None:
    """Show one line per row; text from records is never interpreted.

    Args:
        rows: What the columns are read from.
        columns: From left to right.
        if_empty: Shown instead of a table without rows.
        omit_empty: Leave out columns in which no row has a value.
        key: Key of the table.
    """
    frame = frame_of(rows, columns, omit_empty=omit_empty)
    if frame.empty and if_empty is not None:
        st.text(if_empty)
        return
    # a column without values may have been left out
    filled = [column for column in columns if column.name in frame]
    formats: dict[Any, Any] = {
        column.name: column.write for column in filled if column.write is not None
    }
    style = frame.style.format(formats, na_rep=NO_VALUE)
    for column in filled:
        if column.warn_above is not None:
            colour = partial(_warn_above, column.warn_above)
            style.map(colour, subset=[column.name])
    is_short = len(frame) <= _ROWS_SHOWN
    st.dataframe(
        style,
        hide_index=True,
        column_config={column.name: column.config for column in filled},
        placeholder=NO_VALUE,
        height="content" if is_short else _SCROLLED_PX,
        key=key,
    )
