"""A part of a table that is too long for a page: what a reader looks for, in an order of theirs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import pandas as pd


def rows_with(
    frame: pd.DataFrame,
    words: str,
    *,
    formats: Mapping[str, Callable[[float], str]],
    columns: Collection[str],
) -> pd.DataFrame:
    """The rows in which the words stand, in small or large letters, in one of these columns as it is written.

    Args:
        frame: In any order, which stays.
        words: As typed; blanks around them count for nothing, and none at all leaves every row.
        formats: How the numbers of a column are written.
        columns: That are looked at.
    """
    wanted = words.strip().casefold()
    if not wanted:
        return frame
    stands_in = {
        name: [
            is_there and wanted in formats.get(name, str)(value).casefold() for value, is_there in _told(frame[name])
        ]
        for name in columns
    }
    return frame[pd.DataFrame(stands_in, index=frame.index).any(axis="columns")]


def in_order_of(frame: pd.DataFrame, column: str, *, is_descending: bool) -> pd.DataFrame:
    """Numbers by their size and texts by their letters; what is missing comes last, and equals stay as they were."""
    return frame.sort_values(column, ascending=not is_descending, kind="stable", na_position="last")


def part_title(first: int, row_count: int, part_rows: int) -> str:
    """`Rows 201 to 400 of 1,000`, counted from one; `first` from zero."""
    return f"Rows {first + 1:,} to {min(first + part_rows, row_count):,} of {row_count:,}"


def _told(values: pd.Series) -> Iterator[tuple[Any, bool]]:
    """Each value, and if it is there."""
    return zip(values.tolist(), values.notna(), strict=True)
