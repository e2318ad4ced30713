"""The dashboard in this process, with a real database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import streamlit as st
from sqlalchemy import URL
from streamlit.components.v2 import manifest_scanner
from streamlit.navigation.page import StreamlitPage
from streamlit.testing.v1 import AppTest

import roofwatch.dashboard.app
from roofwatch.dashboard.navigation import FRONT_PAGE
from roofwatch.model.history import Regression
from roofwatch.model.record import RunRecord
from tests.dashboard.gpu_history import store_gpu_history
from tests.dashboard.history import store_history
from tests.databases import Databases

OpenView = Callable[..., AppTest]
_TIMEOUT_S = 60


def forget_everything() -> None:
    """Clear all caches."""
    st.cache_data.clear()
    st.cache_resource.clear()


@pytest.fixture(scope="session", autouse=True)
def known_components() -> Iterator[None]:
    """Streamlit reads about each installed package whether it brings a component, seconds of work,
    once for a server; its `AppTest` does so once for each app.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            manifest_scanner,
            "scan_component_manifests",
            cache(manifest_scanner.scan_component_manifests),
        )
        yield


@pytest.fixture
def show_database(monkeypatch: pytest.MonkeyPatch) -> Callable[[URL], None]:
    """Let the views show a database."""
    return lambda url: monkeypatch.setenv(
        "ROOFWATCH_DATABASE_URL", url.render_as_string(hide_password=False)
    )


@pytest.fixture
def open_view(database_url: URL, show_database: Callable[[URL], None]) -> Iterator[OpenView]:
    """`open_view("roof", kernel="softmax")` opens the view at that address, on the test's
    database.
    """
    show_database(database_url)
    forget_everything()

    def open_it(view: str, **address: str | list[str]) -> AppTest:
        app = AppTest.from_file(
            str(Path(roofwatch.dashboard.app.__file__)), default_timeout=_TIMEOUT_S
        )
        if view != FRONT_PAGE:
            # the pages are known only after a first run, which need not draw the front page
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(StreamlitPage, "run", lambda _: None)
                app.run()
            app.switch_page(f"views/{view}.py")
        app.query_params.clear()
        for parameter, value in address.items():
            app.query_params[parameter] = value
        app.run()
        assert not app.exception
        return app

    yield open_it
    forget_everything()


@pytest.fixture(scope="session")
def stored_history(databases: Databases) -> Iterator[tuple[URL, list[Regression]]]:
    """A database with one project for tests that add no runs, and its regressions."""
    with databases.filled(store_history) as stored:
        yield stored


@pytest.fixture
def judged(
    open_view: OpenView,
    show_database: Callable[[URL], None],
    stored_history: tuple[URL, list[Regression]],
) -> list[Regression]:
    """Regressions of the project that the views show."""
    show_database(stored_history[0])
    return stored_history[1]


@pytest.fixture(scope="session")
def stored_gpu_history(databases: Databases) -> Iterator[tuple[URL, list[RunRecord]]]:
    """A database with runs of a GPU for tests that only read, and its six records."""
    with databases.filled(store_gpu_history) as stored:
        yield stored


@pytest.fixture
def records(
    open_view: OpenView,
    show_database: Callable[[URL], None],
    stored_gpu_history: tuple[URL, list[RunRecord]],
) -> list[RunRecord]:
    """Records of the GPU that the views show."""
    show_database(stored_gpu_history[0])
    return stored_gpu_history[1]
