"""The address of a view restores all its choices."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import URL, Engine
from streamlit.testing.v1 import AppTest

from roofwatch.db.ingest.artefacts import store_artefact
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.regressions.judgements import replace_regressions
from roofwatch.model.record import ArtefactKind
from tests.builders import (
    PROJECT,
    make_artefact,
    make_change_point,
    make_regression,
    make_series_key,
)
from tests.dashboard.conftest import OpenView
from tests.dashboard.gpu_history import RUN_COUNT, SOFTMAX, calibration, gpu, gpu_record
from tests.dashboard.seen import address, texts
from tests.databases import Databases

VIEWS = {
    "ledger": {},
    "roof": {},
    "compare": {},
    "machines": {"runner": gpu().runner_class, "case": SOFTMAX, "implementation": "triton"},
    "machines, all": {},
}
ENVIRONMENTS = [gpu().model_copy(update={"power_limit_w": limit_w}) for limit_w in (600.0, 700.0)]
PARTS = {
    "ledger": ("settled", "every", "evidence", "bisection", "trail"),
    "roof": ("metrics",),
    "machines": ("ceilings", "noise", "history", "environments"),
    "machines, all": ("costs", "gaps"),
}
"""Expanders by view."""


def store(engine: Engine) -> None:
    """Store runs of two runner classes with files, and two regressions."""
    for number in range(RUN_COUNT):
        for environment in ENVIRONMENTS:
            contents = {f"{letter}.sass": f"{letter} {number}".encode() for letter in "ab"}
            files = [
                make_artefact(one, name=name, kind=ArtefactKind.DISASSEMBLY)
                for name, one in contents.items()
            ]
            record = gpu_record(number, environment=environment, artefacts=files)
            ingest_record(engine, record)
            for file in files:
                store_artefact(engine, record.run_id, file.sha256, io.BytesIO(contents[file.name]))
    for record in calibration():
        ingest_record(engine, record)
    series = make_series_key(
        case_id=SOFTMAX, implementation="triton", runner_class=ENVIRONMENTS[0].runner_class
    )
    moved = [(at, make_change_point(at, series=series)) for at in (2, 3)]
    replace_regressions(
        engine,
        PROJECT,
        [make_regression(at, kernel="softmax", change_points=(change,)) for at, change in moved],
    )


@pytest.fixture(scope="module")
def stored(databases: Databases) -> Iterator[URL]:
    with databases.filled(store) as (url, _):
        yield url


def widgets(app: AppTest) -> Iterator[Any]:
    """Return all widgets with a value."""
    yield from (*app.selectbox, *app.multiselect, *app.toggle)


def other_value(widget: Any) -> Any:
    """Return another value of the widget, if it has one."""
    if widget.type == "toggle":
        return not widget.value
    if widget.type == "multiselect":
        left = [option for option in widget.options if option not in widget.value]
        return [*widget.value, left[0]] if left else widget.value[:1] or None
    options = [option for option in widget.options if option != widget.format_func(widget.value)]
    if not options:
        return None
    if widget.key.rpartition(":")[2] in {"base", "head"}:
        # a list with free text, which this way of testing cannot enter
        return None
    return options[-1]


@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
def test_an_address_restores_every_widget(
    open_view: OpenView, stored: URL, show_database: Callable[[URL], None], view: str
) -> None:
    show_database(stored)
    view_name = view.partition(",")[0]
    app = open_view(view_name, **VIEWS[view], **dict.fromkeys(PARTS.get(view, ()), "open"))
    done: set[str] = set()
    while waiting := [one for one in widgets(app) if one.key not in done]:
        widget = waiting[0]
        done.add(widget.key)
        parameter = widget.key.rpartition(":")[2]
        value = other_value(widget)
        if value is None:
            continue
        before = address(app)
        widget.set_value(value).run()
        assert not app.exception, parameter
        assert address(app) != before, f"{parameter} is not in the address"
    theirs = open_view(view_name, **address(app))
    assert not [one for one in theirs.warning if "The address asks for" in one.value]
    assert {one.key: one.value for one in widgets(theirs)} == {
        one.key: one.value for one in widgets(app)
    }
    assert texts(theirs) == texts(app)
    assert len(theirs.dataframe) == len(app.dataframe)
    assert address(theirs) == address(app)
