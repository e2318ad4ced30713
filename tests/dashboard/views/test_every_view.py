"""Behaviour of every view."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import quote

import pytest
from sqlalchemy import URL, Engine

from roofwatch.dashboard import data
from roofwatch.dashboard.navigation import VIEWS
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.model.history import Regression
from tests.builders import PROJECT, make_record
from tests.dashboard.conftest import OpenView, forget_everything
from tests.dashboard.history import store_history, store_hostile_project
from tests.dashboard.seen import address, texts
from tests.dashboard.values import HOSTILE
from tests.databases import allow_connections, reading_role

EVERY_PART = [
    *((view, {}) for view in VIEWS),
    ("ledger", {"settled": "open", "every": "open", "evidence": "open", "trail": "open"}),
    ("machines", {"costs": "open", "gaps": "open"}),
]
MISSING = {
    "project": "no/such",
    "kernel": HOSTILE,
    "metric": "x",
    "base": "x",
    "commit": "x",
    "dirty": "perhaps",
}


@pytest.mark.parametrize("view", VIEWS)
def test_empty_views_show_the_first_commands(open_view: OpenView, view: str) -> None:
    app = open_view(view)
    assert "roofwatch run" in texts(app)
    assert "roofwatch ingest" in texts(app)


@pytest.mark.parametrize("view", VIEWS)
def test_a_run_without_results_is_no_error(open_view: OpenView, store: Engine, view: str) -> None:
    ingest_record(store, make_record(measurements=[], ceilings=()))
    app = open_view(view)
    assert not app.error


@pytest.mark.parametrize("view", VIEWS)
def test_the_address_of_a_view_opens_it_again_without_an_error(
    open_view: OpenView, judged: list[Regression], view: str
) -> None:
    first = open_view(view)
    assert not first.error
    assert not first.warning
    again = open_view(view, **address(first))
    assert address(again) == address(first)
    assert texts(again) == texts(first)
    assert not again.warning


@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
def test_an_address_with_values_that_do_not_exist_falls_back_with_a_notice(
    open_view: OpenView, judged: list[Regression], view: str
) -> None:
    app = open_view(view, **MISSING)
    assert app.warning
    assert address(app)["project"] == [PROJECT]


def test_an_unreachable_database_is_one_error_with_advice(
    open_view: OpenView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOFWATCH_DATABASE_URL", "postgresql://nobody:secret@127.0.0.1:1/nothing")
    app = open_view("roof")
    (error,) = app.error
    assert "127.0.0.1:1" in error.value
    assert "secret" not in error.value
    assert "ROOFWATCH_DATABASE_URL" in texts(app)


def test_a_lost_database_is_an_error_until_it_is_back(
    open_view: OpenView, store: Engine, database_url: URL
) -> None:
    store_history(store)
    store.dispose()
    app = open_view("ledger")
    assert not app.error
    allow_connections(database_url, are_allowed=False)
    data._remembered.clear()
    app.run()
    assert "the database was lost" in app.error[0].value
    allow_connections(database_url, are_allowed=True)
    app.run()
    assert not app.exception
    assert not app.error


def test_links_between_views_keep_what_all_views_share(open_view: OpenView, store: Engine) -> None:
    store_history(store)
    store_history(store, project="another/project")
    app = open_view("ledger", project=PROJECT, dtype="float32", range="90d")
    bar = app.get("bidi_component")[0].proto.json
    for view in ("roof", "compare", "machines"):
        shared = f"project={quote(PROJECT, safe='')}&amp;dtype=float32&amp;range=90d"
        assert f"{view}?{shared}" in bar
    assert ">another/project<" in bar


@pytest.mark.parametrize(("view", "asked"), EVERY_PART)
def test_text_from_records_is_markdown_only_inside_code(
    open_view: OpenView, store: Engine, view: str, asked: dict[str, str]
) -> None:
    store_hostile_project(store)
    app = open_view(view, **asked)
    assert not any(
        "<img src='x'" in one.proto.body or "<script" in one.proto.body for one in app.get("html")
    )
    for kind in (
        app.markdown,
        app.caption,
        app.info,
        app.warning,
        app.success,
        app.header,
        app.subheader,
        app.metric,
    ):
        for element in kind:
            outside = re.sub(r"(`+).*?\1", "", str(element.value))
            assert "<img" not in outside
            assert "javascript" not in outside
    shown = [
        texts(app),
        *(one.value.to_csv() for one in app.dataframe),
        *(str(one.options) for one in app.selectbox),
    ]
    assert "\u202e" not in "".join(shown)


def test_every_view_opens_as_a_role_that_only_reads(
    store: Engine, open_view: OpenView, show_database: Callable[[URL], None]
) -> None:
    store_history(store)
    with reading_role(store) as url:
        show_database(url)
        for view in VIEWS:
            app = open_view(view)
            assert not app.error
            assert "<h1" in str([part.proto.body for part in app.get("html")])
        forget_everything()
