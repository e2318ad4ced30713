"""Runs of commits that their branch no longer comes from: said in words wherever one is chosen, and never what a view
sets something against by itself.
"""

from __future__ import annotations

from datetime import UTC

import pytest
from sqlalchemy import Engine, update

from roofwatch.dashboard.sides import By, runs_by, title_of
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.queries.filter_option_values import Facets
from roofwatch.db.schema.runs import RunRow
from tests.builders import make_commit, make_measurement, make_record, sha_of
from tests.dashboard.conftest import OpenView
from tests.dashboard.test_runner_figures import make_fleet_run
from tests.dashboard.test_views import address, choice

WORDS = "(no longer on its branch)"
ON_BRANCH = [make_record(0), make_record(1)]
LEFT_SHA = sha_of(9)
LEFT = make_record(9, commit=make_commit(9), measurements=[make_measurement(median_ns=20_000.0)])
NEWEST = make_record(10, commit=make_commit(2), started_at=LEFT.finished_at, finished_at=LEFT.finished_at)


@pytest.fixture
def rewritten(store: Engine) -> Engine:
    for record in (*ON_BRANCH, LEFT, NEWEST):
        ingest_record(store, record)
    with store.begin() as connection:
        connection.execute(update(RunRow).where(RunRow.run_id == LEFT.run_id).values(is_unreachable=True))
    return store


def marked(options: list[str]) -> list[bool]:
    assert all(LEFT_SHA[:8] in option for option in options if WORDS in option)
    return [WORDS in option for option in options]


def test_a_list_of_runs_says_which_their_branch_has_left(open_view: OpenView, rewritten: Engine) -> None:
    app = open_view("run")

    # the newest run first
    assert marked(choice(app, "Run").options) == [False, True, False, False]
    # and its link leads past what was left to what is on the branch
    (link,) = [one.proto for one in app.get("page_link") if "before it" in one.proto.label]
    assert f"of {sha_of(1)[:8]}" in link.label
    of_left = open_view("run", run=str(LEFT.run_id))
    assert any("before it" in one.proto.label for one in of_left.get("page_link"))


def test_commits_to_compare_are_marked_and_none_that_was_left_is_chosen(open_view: OpenView, rewritten: Engine) -> None:
    app = open_view("compare")

    # in the order of their counts, the highest first
    assert marked(choice(app, "Base").options) == marked(choice(app, "Head").options) == [True, False, False, False]
    assert (address(app)["base"], address(app)["head"]) == ([sha_of(1)], [sha_of(2)])


def test_a_kernel_is_shown_as_of_the_newest_commit_that_is_on_the_branch(
    open_view: OpenView, rewritten: Engine
) -> None:
    app = open_view("kernel")

    assert marked(choice(app, "Commit").options) == [False, False, False, True]
    assert address(app)["commit"] == [sha_of(2)]


def test_a_branch_is_spoken_for_by_what_is_on_it() -> None:
    left, kept = make_fleet_run(2, is_unreachable=True), make_fleet_run(1, is_dirty=True)
    facets = Facets((), {"main": frozenset({left.commit.sha, kept.commit.sha})}, ())

    assert runs_by(By.BRANCHES, [left, kept], facets) == {"main": [kept, left]}
    by_run = runs_by(By.RUNS, [left, kept], facets)
    titles = [title_of(By.RUNS, choice, runs, UTC) for choice, runs in by_run.items()]
    assert ["no longer on its branch" in title for title in titles] == [True, False]
