"""Views for other tools, and the queries of the Grafana dashboard, as a role that only reads."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.queries.series import read_series
from roofwatch.db.queries.series_keys import list_series_keys
from roofwatch.db.regressions.judgements import replace_regressions
from roofwatch.model.provenance import LoadedFile, Origin
from roofwatch.model.record import PairMember, Side
from tests.builders import (
    PROJECT,
    make_commit,
    make_measurement,
    make_record,
    make_regression,
    sha_of,
)
from tests.ci.forges.jobs import ROOT
from tests.databases import reading_role

DASHBOARD = json.loads((ROOT / "grafana" / "dashboard.json").read_text())
HOSTILE = "it's a; kernel"


@pytest.fixture
def reader(store: Engine) -> Iterator[Engine]:
    """A store with a history and one regression, as a role of Grafana sees it."""
    for number in range(3):
        ingest_record(
            store, make_record(number, measurements=[make_measurement(median_ns=10_000 + number)])
        )
    for commit in (make_commit(3, branch="feature"), make_commit(4, is_dirty=True)):
        ingest_record(store, make_record(commit=commit))
    foreign = LoadedFile(module="qk", path="qk.py", origin=Origin.ELSEWHERE)
    ingest_record(store, make_record(7, provenance=(foreign,)))
    ingest_record(store, make_record(5, pairing=PairMember(pair_id=uuid.uuid4(), side=Side.HEAD)))
    ingest_record(store, make_record(6), is_quarantined=True)
    replace_regressions(store, PROJECT, [replace(make_regression(1), typical_change=0.2)])
    with reading_role(store) as url:
        engine = create_engine(url)
        yield engine
        engine.dispose()


def rows(engine: Engine, query: str) -> list[dict[str, Any]]:
    with engine.connect() as connection:
        return [
            dict(row) for row in connection.exec_driver_sql(query.replace("%", "%%")).mappings()
        ]


def filled(query: str, project: str = PROJECT) -> str:
    """Replace macros and variables as Grafana does."""
    query = re.sub(
        r"\$__timeFilter\((\w+)\)",
        r"\1 BETWEEN '2000-01-01T00:00:00Z' AND '2100-01-01T00:00:00Z'",
        query,
    )
    for name, value in {"project": project, "kernel": "rms_norm"}.items():
        escaped = value.replace("'", "''")
        query = query.replace(f"${{{name}:sqlstring}}", f"'{escaped}'")
    assert "$" not in query
    return query


def test_the_points_are_those_of_the_history(store: Engine, reader: Engine) -> None:
    with Session(store) as session:
        keys = list_series_keys(session, PROJECT, metric="median_ns")
        (series,) = read_series(session, PROJECT, keys)
    expected = [
        (str(point.run_id), point.commit.sha, point.value, point.low, point.high)
        for point in series.points
    ]

    found = rows(reader, "SELECT * FROM series_point ORDER BY first_parent_count")

    assert len(expected) == 3
    columns = ("sha", "median_ns", "q1_ns", "q3_ns")
    assert [(str(row["run_id"]), *(row[column] for column in columns)) for row in found] == expected
    assert {row["project"] for row in found} == {PROJECT}, "quarantined records are in no view"


def test_a_regression_s_row_says_what_was_decided_where(reader: Engine) -> None:
    (row,) = rows(reader, "SELECT * FROM regression_point")

    assert (row["sha"], row["committed_at"]) == (sha_of(1), make_commit(1).committed_at)
    assert (row["kernel"], row["verdict"], row["state"], row["triage"]) == (
        "rms_norm",
        "regressed",
        "open",
        "new",
    )
    assert (row["typical_change"], row["cause"]) == (0.2, "code")


@pytest.mark.parametrize("panel", DASHBOARD["panels"], ids=lambda panel: str(panel["title"]))
def test_each_panel_shows_the_stored_history(reader: Engine, panel: dict[str, Any]) -> None:
    (target,) = panel["targets"]

    found = rows(reader, filled(target["rawSql"]))

    assert found
    if target["format"] == "time_series":
        assert [set(row) for row in found] == [{"time", "metric", "value"}] * 3
        assert [row["time"] for row in found] == [
            make_commit(number).committed_at for number in range(3)
        ]
    assert rows(reader, filled(target["rawSql"], HOSTILE)) == []


def test_regressions_are_annotated(reader: Engine) -> None:
    (annotation,) = DASHBOARD["annotations"]["list"]

    (shown,) = rows(reader, filled(annotation["target"]["rawSql"]))

    assert shown["time"] == make_commit(1).committed_at
    assert shown["text"] == "regressed: rms_norm became 20 % slower on 1 series"
    assert shown["tags"] == f"rms_norm,regressed,code,{sha_of(1)[:8]}"


def test_variables_of_the_board_have_values(reader: Engine) -> None:
    variables = DASHBOARD["templating"]["list"]
    project, kernel = (item["query"] for item in variables if item["type"] == "query")

    assert rows(reader, filled(project)) == [{"project": PROJECT}]
    assert rows(reader, filled(kernel)) == [{"kernel": "rms_norm"}]


def test_the_role_can_change_nothing_through_a_view(reader: Engine) -> None:
    with reader.connect() as connection, pytest.raises(DBAPIError):
        connection.execute(text("DELETE FROM regression_point"))
