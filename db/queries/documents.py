"""Rows of a query as one document beside the row that they belong to: what hangs on a run is read in one statement."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ScalarSelect, Select, func, select


def document_of(query: Select[*tuple[Any, ...]], *outer: Any, name: str) -> ScalarSelect[Any]:
    """The rows of a query as a column of another statement; NULL where there are none. A row is an object of
    its columns as JSON has them: a coded word is the place of the word, a time is text.

    Args:
        query: May speak of tables of the other statement.
        outer: Those tables.
        name: Of the query within the statement.
    """
    rows = query.correlate(*outer).subquery(name)
    return select(func.json_agg(func.row_to_json(rows.table_valued()))).scalar_subquery()
