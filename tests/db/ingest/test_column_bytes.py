"""What is sent by columns is what the driver sends row by row."""

from collections.abc import Sequence
from datetime import date
from typing import Any

import numpy as np
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from roofwatch.db.ingest.column_bytes import Column, Same, encode
from roofwatch.db.ingest.staging import Columns, Load, Target, stage_rows

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int2": st.integers(-(2**15), 2**15 - 1),
    "int4": st.integers(-(2**31), 2**31 - 1),
    "int8": st.integers(-(2**63), 2**63 - 1),
    "float4": st.floats(width=32),
    "float8": st.floats(),
    "text": st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    "bytea": st.binary(),
    "int8[]": st.lists(st.integers(-(2**63), 2**63 - 1)),
}
KINDS = [*VALUES, "date"]
TARGETS = [
    Target(name, {f"column_{place}": kind for place, kind in enumerate(KINDS)}) for name in ("by_columns", "by_rows")
]


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[list[Any]], list[bool]]:
    """Columns of one length of every kind, with as many NULLs as may be, and which of them are sent as one value."""
    row_count = draw(st.integers(0, 6))
    columns, are_same = [], []
    for kind in KINDS:
        value = VALUES.get(kind, st.dates())
        is_same = kind == "date" or draw(st.booleans())
        values = draw(st.sampled_from([value, value | st.none(), st.none()]))
        if is_same:
            columns.append([draw(values)] * row_count)
        else:
            columns.append(draw(st.lists(values, min_size=row_count, max_size=row_count)))
        are_same.append(is_same and row_count > 0)
    return columns, are_same


def copied(store: Engine, load: Load | Columns) -> bytes:
    """What Postgres has after the load, as it would send it itself."""
    with store.connect() as connection:
        stage_rows(connection, load)
        driver = connection.connection.driver_connection
        assert isinstance(driver, psycopg.Connection)
        with driver.cursor().copy(f"COPY {load.target.name} TO STDOUT (FORMAT BINARY)".encode()) as copy:
            return b"".join(map(bytes, copy))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables())
def test_postgres_gets_the_same_by_columns_as_from_the_driver(
    store: Engine, table: tuple[list[list[Any]], list[bool]]
) -> None:
    columns, are_same = table
    values = [Same(column[0]) if is_same else column for column, is_same in zip(columns, are_same, strict=True)]
    by_columns, by_rows = TARGETS
    row_count = len(columns[0])
    got = copied(store, Columns(by_columns, values, row_count))
    assert got == copied(store, Load(by_rows, list(zip(*columns, strict=True))))
    # nor does Postgres add or take anything: these are the very bytes that were sent
    assert got == b"".join(encode(KINDS, values, row_count, "utf-8"))


def test_arrays_are_sent_as_lists_are() -> None:
    numbers, times = [3, -7, 2**31 - 1], [0.5, -0.0, float("nan")]
    kinds = ["int4", "float8", "float4"]
    of_arrays = encode(kinds, [np.array(numbers), np.array(times), np.array(times, dtype=np.float32)], 3, "utf-8")
    assert b"".join(of_arrays) == b"".join(encode(kinds, [numbers, times, times], 3, "utf-8"))


def test_many_rows_come_in_several_blocks_and_in_order(store: Engine) -> None:
    count = 10_000
    names = [None if place % 7 == 0 else f"n{place % 5}" for place in range(count)]
    columns: list[Column] = [Same(date(2026, 3, 1)), range(count), names]
    target = Target("many_rows", {"day": "date", "place": "int4", "name": "text"})
    rows = [(date(2026, 3, 1), place, name) for place, name in enumerate(names)]
    assert len(list(encode(list(target.columns.values()), columns, count, "utf-8"))) > 3
    assert copied(store, Columns(target, columns, count)) == copied(store, Load(target, rows))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("int2", [1, 2**15]),
        ("int4", [-(2**31) - 1, None]),
        ("int4", np.array([2**31])),
        ("int8", [2**63]),
        ("float4", [1e39]),
        ("float4", np.array([1.0, -1e39])),
    ],
)
def test_a_number_out_of_range_is_refused(kind: str, values: Sequence[Any]) -> None:
    with pytest.raises(psycopg.DataError):
        list(encode([kind], [values], len(values), "utf-8"))
