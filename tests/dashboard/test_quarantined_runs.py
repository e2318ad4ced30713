"""Runs that nobody vouches for: shown as that where somebody looks for runs, and nowhere counted."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.queries.fleet import list_fleet_runs
from tests.builders import PROJECT, make_commit, make_record, sha_of
from tests.dashboard.conftest import OpenView
from tests.dashboard.test_views import address, choice, table, texts

TRUSTED, DOUBTED = [make_record(number) for number in range(2)], make_record(5, commit=make_commit(5, branch="fork"))


@pytest.fixture
def half_trusted(store: Engine) -> Engine:
    for record in TRUSTED:
        ingest_record(store, record)
    ingest_record(store, DOUBTED, is_quarantined=True)
    return store


def test_a_quarantined_run_is_listed_marked_and_opens_by_its_link(open_view: OpenView, half_trusted: Engine) -> None:
    app = open_view("run")
    assert address(app)["run"] == [str(TRUSTED[-1].run_id)]
    assert [one.startswith("⊘ quarantined") for one in choice(app, "Run").options] == [True, False, False]
    assert not app.warning

    linked = open_view("run", run=str(DOUBTED.run_id))
    assert address(linked)["run"] == [str(DOUBTED.run_id)]
    assert "in quarantine: nobody vouches for it" in linked.warning[0].value
    assert "Took 5 min" in texts(linked)
    assert not linked.get("page_link")


def test_the_overview_tells_how_many_runs_are_in_quarantine_and_leads_there(
    open_view: OpenView, half_trusted: Engine
) -> None:
    def links(**asked: str) -> list[str]:
        told = [one.proto for one in open_view("overview", **asked).get("page_link") if "quarantine" in one.proto.label]
        return [f"{one.label} {one.page}?{one.query_string}" for one in told]

    assert links() == [
        f"In quarantine, where nobody vouches for them: 1 run run?project=example%2Fproject&run={DOUBTED.run_id}"
    ]
    assert links(branch="main") == []


def test_a_quarantined_run_counts_for_no_other_view(open_view: OpenView, half_trusted: Engine) -> None:
    compared = open_view("compare")
    assert (address(compared)["base"], address(compared)["head"]) == ([sha_of(0)], [sha_of(1)])
    assert table(open_view("fleet"), "of a commit")["runs"].tolist() == [2]
    values = table(open_view("trends", values="open"), "value")
    assert values["commit"].tolist() == [sha_of(0)[:8], sha_of(1)[:8]]


def test_as_many_runs_of_the_quarantine_are_found_as_of_the_project(half_trusted: Engine) -> None:
    doubted = str(DOUBTED.run_id)
    with Session(half_trusted) as session:
        trusted = list_fleet_runs(session, PROJECT, limit=1, or_run=doubted)
        both = list_fleet_runs(session, PROJECT, limit=1, with_quarantine=True)
        of_a_fork = list_fleet_runs(session, PROJECT, limit=1, with_quarantine=True, branches=["fork"])

    assert [run.run_id for run in trusted] == [str(TRUSTED[-1].run_id)]
    assert [(run.run_id, run.is_quarantined) for run in both] == [(doubted, True), (str(TRUSTED[-1].run_id), False)]
    assert [run.run_id for run in of_a_fork] == [doubted]
