"""The dashboard in this process, on a real database."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
import streamlit as st
from sqlalchemy import URL
from streamlit.components.v2 import manifest_scanner
from streamlit.navigation.page import StreamlitPage
from streamlit.testing.v1 import AppTest

import roofwatch.dashboard.app
from roofwatch.dashboard import data

OpenView = Callable[..., AppTest]
_TIMEOUT_S = 60


def forget_everything() -> None:
    """Drop what the dashboard remembers, as a new process would."""
    st.cache_data.clear()
    st.cache_resource.clear()


def forget_answers() -> None:
    """Drop what the dashboard read, but not its connections."""
    for one in vars(data).values():
        if one is not data._store and hasattr(one, "clear") and hasattr(one, "__wrapped__"):
            one.clear()


def _write_values(frame: pd.DataFrame, formats: Collection[str], _columns: object) -> None:
    st.dataframe(frame.astype(dict.fromkeys(formats, float)))


@pytest.fixture(scope="session", autouse=True)
def known_components() -> Iterator[None]:
    """Streamlit reads about each installed package whether it brings a component, seconds of work, once for a server;
    its `AppTest` does so once for each app.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest_scanner, "scan_component_manifests", cache(manifest_scanner.scan_component_manifests))
        yield


@pytest.fixture
def open_view(database_url: URL, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenView]:
    """`open_view("trends", kernel="softmax")` opens the view at that address, on the test's database."""
    monkeypatch.setenv("ROOFWATCH_DATABASE_URL", database_url.render_as_string(hide_password=False))
    # as values; `test_tables.py` has what they are written as
    monkeypatch.setattr("roofwatch.dashboard.tables.table._write", _write_values)
    forget_everything()

    def open_it(view: str, **address: str | list[str]) -> AppTest:
        app = AppTest.from_file(str(Path(roofwatch.dashboard.app.__file__)), default_timeout=_TIMEOUT_S)
        if view != "overview":
            # the pages are known only after a first run, which need not draw the front page
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(StreamlitPage, "run", lambda _: None)
                app.run()
            app.switch_page(f"views/{view}.py")
        app.query_params.clear()
        for parameter, value in address.items():
            app.query_params[parameter] = value
        return app.run()

    yield open_it
    forget_everything()
