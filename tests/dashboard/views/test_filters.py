"""Every filter on every view changes what is shown, or the view notes that it does not apply."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import URL, Engine
from streamlit.testing.v1 import AppTest

from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.regressions.judgements import replace_regressions
from roofwatch.model.record import PairMember, RunRecord, Side
from tests.builders import (
    PROJECT,
    make_blocks,
    make_case,
    make_change_point,
    make_commit,
    make_environment,
    make_measurement,
    make_record,
    make_regression,
    make_series_key,
    sha_of,
)
from tests.dashboard.conftest import OpenView
from tests.dashboard.seen import markup, read_at_most, texts
from tests.databases import Databases

SOFTMAX, GEMM = "softmax/n=8/float16/fwd", "gemm/M=8/float32/fwd"
SOFTMAX_WIDE = "softmax/n=8/float32/fwd"
MINE, OTHER = make_environment(), make_environment(device_name="Other CPU")
_CASES = tuple(
    make_case(case_id, family=family, tags=tags)
    for case_id, family, tags in (
        (SOFTMAX, "reduction", ("quick", "decode")),
        (SOFTMAX_WIDE, "reduction", ("full",)),
        (GEMM, "matmul", ("full", "prefill")),
    )
)
NARROWED = {"branch": "old", "class": OTHER.runner_class, "dtype": "float32"}
"""Kernel, family, tag and owner act as dtype does, through `Filters.case_ids`, which
`test_filters.py` has.
"""
VIEWS: dict[str, dict[str, str]] = {
    "ledger": {"range": "all"},
    "roof": {"kernel": "softmax"},
    "compare": {},
    "compare by runs": {"by": "runs"},
    "machines": {},
    "machines, costs": {"costs": "open", "bars": "family"},
    "machines, gaps": {"gaps": "open"},
}


def record(number: int, *, branch: str = "main", **fields: Any) -> RunRecord:
    commit = make_commit(number, branch=branch)
    # no run takes what another does
    measurements = [
        make_measurement(case_id, blocks=make_blocks([1_000.0 * (place + 1) + 10 * number] * 3))
        for place, case_id in enumerate((SOFTMAX, SOFTMAX_WIDE, GEMM))
    ]
    return make_record(number, commit=commit, cases=_CASES, measurements=measurements, **fields)


def calibration() -> list[RunRecord]:
    pair_id = uuid.uuid4()
    sides = (Side.BASE, Side.HEAD)
    return [
        record(6, branch="calibrated", pairing=PairMember(pair_id=pair_id, side=side))
        for side in sides
    ]


def store(engine: Engine) -> None:
    """Store two runners, two branches, two families, two dtypes and two suites, and regressions of
    each.
    """
    records = [
        *(
            record(number, branch="old", environment=environment)
            for environment in (MINE, OTHER)
            for number in (0, 1)
        ),
        *(
            record(number, environment=environment)
            for environment in (MINE, OTHER)
            for number in (2, 3)
        ),
        *(record(number) for number in (4, 5)),
    ]
    for one in (*records, *calibration()):
        ingest_record(engine, one)
    moved = [
        (5, SOFTMAX, MINE),
        (3, GEMM, OTHER),
        (1, SOFTMAX_WIDE, MINE),
        (2, SOFTMAX_WIDE, OTHER),
    ]
    replace_regressions(engine, PROJECT, [_moved(*one) for one in moved])


@pytest.fixture(scope="module")
def narrowable(databases: Databases) -> Iterator[URL]:
    with databases.filled(store) as (url, _):
        yield url


def _moved(number: int, case_id: str, environment: Any) -> Any:
    series = make_series_key(case_id=case_id, runner_class=environment.runner_class)
    change = make_change_point(number, series=series)
    return make_regression(
        number, kernel=series.kernel, change_points=(change,), summary=f"{case_id} moved"
    )


def shown(app: AppTest) -> str:
    """Return everything shown except the header's line of filters."""
    assert not app.error
    said = [
        line
        for line in texts(app).splitlines()
        if not line.startswith(":material/filter_alt: Only")
    ]
    tables = [one.value.to_csv() for one in app.dataframe]
    figures = [one.proto.spec for one in app.get("plotly_chart")]
    return "\n".join([*said, *tables, *figures])


@pytest.fixture(scope="module")
def unnarrowed() -> dict[str, str]:
    return {}


@pytest.fixture
def look(
    open_view: OpenView, narrowable: URL, show_database: Callable[[URL], None]
) -> Callable[..., AppTest]:
    show_database(narrowable)

    def open_it(view: str, **asked: str) -> AppTest:
        return open_view(view.partition(" ")[0].strip(","), **{**VIEWS.get(view, {}), **asked})

    return open_it


@pytest.mark.slow
@pytest.mark.parametrize("parameter", NARROWED)
@pytest.mark.parametrize("view", VIEWS)
def test_no_view_ignores_a_filter_silently(
    look: Callable[..., AppTest], unnarrowed: dict[str, str], view: str, parameter: str
) -> None:
    if view not in unnarrowed:
        unnarrowed[view] = shown(look(view))

    # what a view cannot narrow it says in words, which are a change too
    assert shown(look(view, **{parameter: NARROWED[parameter]})) != unnarrowed[view]


@pytest.mark.parametrize("environment", [MINE, OTHER], ids=["mine", "other"])
def test_two_commits_are_compared_on_the_runner_class_that_is_chosen(
    look: Callable[..., AppTest], environment: Any
) -> None:
    app = look("compare", base=sha_of(2), head=sha_of(3), **{"class": environment.runner_class})

    (other,) = {MINE.runner_class, OTHER.runner_class} - {environment.runner_class}
    html = markup(app)
    assert f'title="{environment.runner_class}"' in html
    assert f'title="{other}"' not in html
    assert not app.warning


def test_views_without_matches_advise_to_widen_the_filters(look: Callable[..., AppTest]) -> None:
    nothing = {"branch": "calibrated", "class": OTHER.runner_class}
    for view in ("ledger", "roof", "machines"):
        said = texts(look(view, **nothing))
        assert "for these filters" in said or "widen the filters" in said, view


def test_a_silent_runner_is_listed_although_another_has_newer_runs(
    look: Callable[..., AppTest], monkeypatch: pytest.MonkeyPatch
) -> None:
    read_at_most(monkeypatch, 1)
    html = "\n".join(part.proto.body for part in look("machines").get("html"))
    for environment in (MINE, OTHER):
        assert f"<p class=rw-soft>{environment.runner_class}</p>" in html
