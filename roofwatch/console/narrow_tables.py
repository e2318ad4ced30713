"""Tables for a terminal that is too narrow for them: rows under headings, without borders."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Column, Table
from rich.text import Text

from roofwatch.console.wrapped_text import fit_columns, least_width, lines_of

_GAP = 2
"""Spaces before each column."""


def lay_out(table: Table, width: int) -> list[RenderableType]:
    """The table if it breaks no name at this width; else its rows under their first cells.

    Then the columns that do not fit are left out, from the last one on, and named below.
    """
    if fit_columns(table, width):
        return [table]
    heading, *columns = table.columns
    filled_columns = [column for column in columns if any(map(str, column.cells))]
    shown_columns = _columns_that_fit(filled_columns, width)
    parts: list[RenderableType] = []
    if table.title:
        parts.append(table.title)
    parts += _groups(heading, shown_columns, width)
    if table.caption:
        parts.append(table.caption)
    hidden_names = [str(column.header) for column in filled_columns[len(shown_columns) :]]
    if hidden_names:
        parts.append(f"not shown at this width: {', '.join(hidden_names)}")
    return parts


def _columns_that_fit(columns: Sequence[Column], width: int) -> list[Column]:
    available = width
    fitting_columns: list[Column] = []
    for column in columns:
        available -= least_width(column) + _GAP
        if available < 0:
            break
        fitting_columns.append(column)
    return fitting_columns


def _groups(heading: Column, columns: Sequence[Column], width: int) -> Iterator[RenderableType]:
    widths = _widths(columns, width)
    group = _table_of(columns, widths, show_header=True)
    current = ""
    rows = zip(heading.cells, *(column.cells for column in columns), strict=True)
    for first_cell, *cells in rows:
        # a remark about the row above has no other cell
        is_remark = not any(map(str, cells))
        if is_remark or str(first_cell) != current:
            yield group
            group = _table_of(columns, widths, show_header=False)
            yield Text.assemble(first_cell) if is_remark else Text(str(first_cell), style="bold")
        if not is_remark:
            current = str(first_cell)
            group.add_row(*cells)
    yield group


def _widths(columns: Sequence[Column], width: int) -> list[int]:
    """The least width of each column, and what remains for those with longer cells."""
    widths = [least_width(column) for column in columns]
    spare = width - sum(widths) - _GAP * len(columns)
    for position, column in enumerate(columns):
        longest = max(map(len, lines_of(column)), default=0)
        extra = min(spare, max(0, longest - widths[position]))
        widths[position] += extra
        spare -= extra
    return widths


def _table_of(columns: Sequence[Column], widths: Sequence[int], *, show_header: bool) -> Table:
    table = Table(
        box=None,
        padding=(0, 0, 0, _GAP),
        pad_edge=True,
        show_header=show_header,
        header_style="dim",
    )
    for column, column_width in zip(columns, widths, strict=True):
        table.add_column(
            column.header,
            justify=column.justify,
            overflow="fold",
            width=column_width,
        )
    return table
