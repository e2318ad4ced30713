"""The address of a view restores all its choices."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import URL, Engine, create_engine
from streamlit.testing.v1 import AppTest

from roofwatch.collector.record.record import Artefact, ArtefactKind
from roofwatch.db.artefacts import store_artefact
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.regressions.judgements import replace_regressions
from tests.builders import PROJECT, make_change_point, make_environment, make_regression, make_series_key
from tests.dashboard.conftest import OpenView
from tests.dashboard.gpu_history import RUN_COUNT, SOFTMAX, calibration, gpu, gpu_record
from tests.dashboard.seen import address, texts
from tests.databases import TEMPLATE, Databases

VIEWS = {
    "overview": {},
    "regression": {},
    "trends": {},
    "compare": {"samples": "yes"},
    "kernel": {"kernel": "softmax"},
    "run": {},
    "runners": {"show": "history of a case", "case": SOFTMAX},
    "fleet": {},
}
FILTERS = {"branch", "class", "family", "dtype", "tag", "owner"}
_OPEN = "open"
PARTS = {
    "overview": ("table", "improvements", "settled"),
    "trends": ("values",),
    "kernel": ("diagnoses",),
    "run": ("environment",),
}
"""Expanders by view."""


@pytest.fixture(scope="module")
def stored(databases: Databases) -> Iterator[URL]:
    """A database for tests that only read."""
    url = databases.make(TEMPLATE)
    engine = create_engine(url)
    _store_history(engine)
    engine.dispose()
    yield url
    databases.finish(url)


@pytest.fixture
def history(open_view: OpenView, stored: URL, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the views show the stored history."""
    monkeypatch.setenv("ROOFWATCH_DATABASE_URL", stored.render_as_string(hide_password=False))


def _store_history(store: Engine) -> None:
    """Store runs of two runner classes with files, and two regressions."""
    for number in range(RUN_COUNT):
        for driver in ("580.65", "590.10"):
            content = [f"{name} {number}".encode() for name in ("a.sass", "b.sass")]
            files = tuple(
                Artefact(
                    name=f"{letter}.sass",
                    kind=ArtefactKind.DISASSEMBLY,
                    sha256=hashlib.sha256(one).hexdigest(),
                    size_bytes=len(one),
                )
                for letter, one in zip("ab", content, strict=True)
            )
            record = gpu_record(number, environment=make_environment(**_gpu_with(driver)))
            ingest_record(store, record.model_copy(update={"artefacts": files}))
            for file, one in zip(files, content, strict=True):
                store_artefact(store, record.run_id, file.sha256, io.BytesIO(one))
    for record in calibration():
        ingest_record(store, record)
    series = make_series_key(
        case_id=SOFTMAX, implementation="triton", runner_class=make_environment(**_gpu_with("580.65")).runner_class
    )
    replace_regressions(
        store,
        PROJECT,
        [make_regression(at, kernel="softmax", change_points=(make_change_point(at, series=series),)) for at in (2, 3)],
    )


def _gpu_with(driver: str) -> dict[str, Any]:
    return gpu().model_dump() | {"driver_version": driver}


def widgets(app: AppTest) -> Iterator[Any]:
    """Return all widgets with a value."""
    yield from (*app.selectbox, *app.multiselect, *app.toggle)


def key_of(widget: Any) -> str:
    return str(widget.key)


def other_value(widget: Any) -> Any:
    """Return another value of the widget, if it has one."""
    if widget.type == "toggle":
        return not widget.value
    if widget.type == "multiselect":
        left = [option for option in widget.options if option not in widget.value]
        return [*widget.value, left[0]] if left else widget.value[:1] or None
    left = [option for option in widget.options if option != widget.format_func(widget.value)]
    return left[-1] if left else None


@pytest.mark.slow
@pytest.mark.usefixtures("history")
@pytest.mark.parametrize("view", VIEWS)
def test_an_address_restores_every_widget(open_view: OpenView, view: str) -> None:
    app = open_view(view, **VIEWS[view], **dict.fromkeys(PARTS.get(view, ()), _OPEN))
    done: set[str] = set()
    while waiting := [one for one in widgets(app) if key_of(one) not in done]:
        widget = waiting[0]
        done.add(key_of(widget))
        parameter = key_of(widget).rpartition(":")[2]
        # they are the same in every view
        if parameter in FILTERS and view != "overview":
            continue
        value = other_value(widget)
        if value is None:
            continue
        before = address(app)
        widget.set_value(value).run()
        assert not app.exception, parameter
        assert address(app) != before, f"{parameter} is not in the address"
        if parameter in FILTERS:
            app = open_view(view, **VIEWS[view])
    theirs = open_view(view, **address(app))
    assert not [one for one in theirs.warning if "The address asks for" in one.value]
    assert {key_of(one): one.value for one in widgets(theirs)} == {key_of(one): one.value for one in widgets(app)}
    assert texts(theirs) == texts(app)
    assert len(theirs.dataframe) == len(app.dataframe)
    assert address(theirs) == address(app)
