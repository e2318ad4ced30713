"""The only reads of the dashboard: values from the store, each remembered for some seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import streamlit as st
from sqlalchemy import Engine
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session

from db import queries
from db.errors import StoreError
from db.session import open_store
from db.values import CommitRef, Regression, RunDetail, RunSummary, Series, SeriesKey
from roofwatch.settings import load_settings

_FRESH_FOR_S = 10


@dataclass(frozen=True)
class _OpenStore:
    engine: Engine
    opened: ExitStack


def _close(store: _OpenStore) -> None:
    store.opened.close()


@st.cache_resource(show_spinner="Opening the database …", on_release=_close)
def _store() -> _OpenStore:
    settings = load_settings()
    url = None if settings.database_url is None else settings.database_url.get_secret_value()
    opened = ExitStack()
    opening = open_store(url, folder=settings.data_dir, connections=settings.database_connections)
    return _OpenStore(opened.enter_context(opening), opened)


@contextmanager
def _session() -> Iterator[Session]:
    """A session on the one store of this process.

    Raises:
        StoreError: the store cannot be opened, or was lost, or all connections are in use; the next read tries again.
    """
    try:
        with Session(_store().engine) as session:
            yield session
    except PoolTimeoutError:
        raise StoreError(
            "all connections to the database are in use; try again, or raise database_connections"
        ) from None
    except (OperationalError, InterfaceError) as error:
        _store.clear()
        raise StoreError(f"the database was lost: {str(error.orig).strip()}") from None


@st.cache_data(ttl=_FRESH_FOR_S, show_spinner=False)
def list_projects() -> list[str]:
    with _session() as session:
        return queries.list_projects(session)


@st.cache_data(ttl=_FRESH_FOR_S, show_spinner=False)
def list_runs(project: str) -> list[RunSummary]:
    """The newest first."""
    with _session() as session:
        return queries.list_runs(session, project)


@st.cache_data(ttl=_FRESH_FOR_S, show_spinner=False)
def list_commits(project: str) -> list[CommitRef]:
    """Those that have runs, oldest first."""
    with _session() as session:
        return queries.list_commits(session, project)


@st.cache_data(ttl=_FRESH_FOR_S, show_spinner=False)
def read_run(project: str, sha: str, *, runner_class: str | None = None) -> RunDetail:
    """The run that speaks for a commit, where there is one on `runner_class`; else on any.

    Raises:
        StoreError: the commit has no run.
    """
    with _session() as session:
        found = queries.find_run(session, project, sha, runner_class=runner_class)
        found = found or queries.find_run(session, project, sha)
        detail = None if found is None else queries.run_detail(session, found.run_id)
    if detail is None:
        raise StoreError(f"commit {sha[:8]} of {project}: no run is stored; reload the page and choose another")
    return detail


@st.cache_data(ttl=_FRESH_FOR_S, show_spinner=False)
def list_series_keys(project: str, *, include_dirty: bool) -> list[SeriesKey]:
    with _session() as session:
        return queries.list_series_keys(session, project, include_dirty=include_dirty)


@st.cache_data(ttl=_FRESH_FOR_S, show_spinner=False)
def read_series(project: str, keys: tuple[SeriesKey, ...], *, include_dirty: bool) -> list[Series]:
    with _session() as session:
        return queries.read_series(session, project, keys=keys, include_dirty=include_dirty)


@st.cache_data(ttl=_FRESH_FOR_S, show_spinner=False)
def list_regressions(project: str) -> list[Regression]:
    """Improvements and dismissed ones too, of the newest commit first."""
    with _session() as session:
        return queries.list_regressions(session, project)
