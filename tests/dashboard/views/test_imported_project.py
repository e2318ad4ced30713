"""Every view of a project that has values of other tools only."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import URL, Engine

from roofwatch.model.history import Cause, Regression, RegressionState
from roofwatch.model.verdict import Verdict
from tests.dashboard.conftest import OpenView
from tests.dashboard.imported_history import store_amdgpu, store_liger
from tests.dashboard.seen import markup, texts
from tests.dashboard.views.test_compare import groups
from tests.dashboard.views.test_every_view import EVERY_PART
from tests.dashboard.views.test_ledger import body
from tests.dashboard.views.test_roof import rows
from tests.databases import Databases

SLOWER_AT = "2845fe83"
"""Where `torch.addmm(out=)` gave way to `mm().float()`: 62.7 to 160.2 ms."""
FALSE_OF_AN_IMPORT = re.compile(
    r"never measured|\b0 kernels|\b0 of [1-9]|0 of 0|timed nothing|same machine|same environment"
    r"|e\+\d\d ns|Duration 0|Device time 0|did not measure|No such case|no samples"
    r"|one of \d{4,} commits|a bisection finds"
)
Stored = tuple[URL, list[Regression]]


@pytest.fixture(scope="module")
def liger(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    folder = tmp_path_factory.mktemp("liger")
    with databases.filled(partial(store_liger, folder=folder)) as stored:
        yield stored


@pytest.fixture(scope="module")
def amdgpu(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    folder = tmp_path_factory.mktemp("amdgpu")
    with databases.filled(partial(store_amdgpu, folder=folder)) as stored:
        yield stored


@pytest.mark.parametrize(("view", "asked"), EVERY_PART)
@pytest.mark.parametrize("history", ["liger", "amdgpu"])
def test_a_view_of_imported_values_says_nothing_false(
    open_view: OpenView,
    show_database: Callable[[URL], None],
    request: pytest.FixtureRequest,
    history: str,
    view: str,
    asked: dict[str, str],
) -> None:
    show_database(request.getfixturevalue(history)[0])
    app = open_view(view, **asked)

    shown = [texts(app), *(one.value.to_csv() for one in app.dataframe)]
    assert not app.error
    assert not app.warning
    assert not FALSE_OF_AN_IMPORT.findall("\n".join(shown))


def test_the_library_tells_the_commits_slowdown_from_the_machines(liger: Stored) -> None:
    slower = [one for one in liger[1] if one.commit.short_sha == SLOWER_AT]
    (regression,) = [one for one in slower if one.verdict is Verdict.REGRESSED]

    assert regression.is_alert
    assert regression.cause not in {Cause.RUNNER, Cause.TOOLCHAIN}
    times = [one for one in regression.change_points if one.series.is_performance]
    assert len(times) == 4
    assert all(one.series.implementation == "liger" for one in times)
    ratios = [one for one in regression.change_points if one.series.is_ratio_to_reference]
    assert {one.series.case_id for one in ratios} == {one.series.case_id for one in times}
    assert any("measured in the same runs" in one.sentence for one in regression.suspects)


@pytest.mark.parametrize("history", ["liger", "amdgpu"])
def test_a_commit_has_one_open_regression_for_each_cause(
    request: pytest.FixtureRequest, history: str
) -> None:
    found = request.getfixturevalue(history)[1]
    open_ones = [one for one in found if one.state is RegressionState.OPEN]
    keys = [(one.commit, one.verdict, one.cause) for one in open_ones]
    assert len(set(keys)) == len(keys)


def test_half_of_an_imported_suite_that_changes_together_is_one_event(amdgpu: Stored) -> None:
    events = {one.commit.short_sha: one for one in amdgpu[1] if one.kernel == "*"}
    event = events["c3e9e197"]

    assert event.cause is Cause.RUNNER
    assert len(event.change_points) == 6
    assert "the machine rather than one kernel" in event.summary


def test_imported_values_have_the_cells_of_measured_ones(
    open_view: OpenView, show_database: Callable[[URL], None], liger: Stored
) -> None:
    show_database(liger[0])
    app = open_view("roof", range="all")

    html = markup(app)
    body = html.partition("<tbody>")[2].partition("</tbody>")[0]
    assert len(body.split("</tr>")) > 4
    # a library has no row of its own where the project has one
    assert "huggingface" not in body
    assert body.count("× ▴") + body.count("× ▾") > 0
    assert 'class="rw-spark"' in body
    assert "e+0" not in html


def test_without_a_roof_the_worst_unsettled_slowdown_stands_first(
    open_view: OpenView, show_database: Callable[[URL], None], amdgpu: Stored
) -> None:
    show_database(amdgpu[0])
    shown = rows(markup(open_view("roof", range="all")))

    changes = [re.search(r"◆ (?:\+(\S+)%|×(\S+))", row) for row in shown]
    costs = [
        float(found[1]) / 100 + 1 if found[1] else float(found[2]) for found in changes if found
    ]
    assert costs[0] > 2
    assert costs == sorted(costs, reverse=True)
    # those without an open slowdown come last
    assert all(changes[: len(costs)])
    assert not any(changes[len(costs) :])


def test_a_range_of_commits_is_nobodys(
    open_view: OpenView, show_database: Callable[[URL], None], amdgpu: Stored
) -> None:
    show_database(amdgpu[0])
    html = body(open_view("ledger", range="all"))
    ranges = [one for one in amdgpu[1] if one.is_range and one.state is RegressionState.OPEN]
    listed = [f"{one.base.short_sha}..{one.commit.short_sha}" for one in ranges]

    assert len(ranges) > 1
    assert [text for text in listed if text in html] == listed
    # the author of the newest of these commits need not be the one who wrote the change
    assert "<th class=who>" not in html


def test_compare_shows_imported_values_with_their_change(
    open_view: OpenView, show_database: Callable[[URL], None], liger: Stored
) -> None:
    show_database(liger[0])
    (slower,) = [
        one
        for one in liger[1]
        if one.commit.short_sha == SLOWER_AT and one.verdict is Verdict.REGRESSED
    ]
    app = open_view("compare", base=slower.base.sha, head=slower.commit.sha)

    html = markup(app)
    found = [part for part in html.split("rw-compared rw-case") if f"at {SLOWER_AT}" in part]
    assert len(found) == 8
    # nothing can measure a pair of another tool's values
    assert groups(html).keys() == {"cannot say"}


def test_no_view_names_a_cpu_for_an_import(store: Engine, tmp_path: Path) -> None:
    store_amdgpu(store, tmp_path)
    with store.connect() as connection:
        kinds = connection.exec_driver_sql(
            "SELECT DISTINCT device_kind, device_memory_bytes, core_count FROM environment"
        ).all()
    assert [tuple(kind) for kind in kinds] == [("unknown", None, None)]
