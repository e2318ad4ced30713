"""Keys of series, page by page."""

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.queries.series import list_series_keys, list_series_page
from tests.builders import PROJECT, make_case, make_measurement, make_record


def test_a_page_of_keys_looks_at_no_more_cases_than_it_needs(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roofwatch.db.queries.series._CASES_AT_ONCE", 2)
    cases = [make_case(f"{kernel}/n={number}/float32/fwd") for kernel in ("Z", "a") for number in range(3)]
    ids = [case.case_id for case in cases]
    # of one there is no series
    ingest_record(
        store, make_record(cases=cases, measurements=[make_measurement(name) for name in ids if name != ids[3]])
    )
    asked: list[str] = []
    event.listen(store, "before_cursor_execute", lambda _, __, statement, *___: asked.append(statement))

    with Session(store) as session:
        whole = list_series_keys(session, PROJECT)
        asked.clear()
        first = list_series_page(session, PROJECT, after=None, limit=1)
        assert len(asked) == 2
        rest = list_series_page(session, PROJECT, after=first[-1], limit=1_000)
        of_kernel = list_series_page(session, PROJECT, after=None, limit=1_000, kernel="Z", metric="median_ns")

    assert {key.case_id for key in first} == {ids[0]}
    assert first + rest == whole
    assert [key.case_id for key in of_kernel] == ids[:3]
