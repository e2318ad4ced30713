"""The only reads of the dashboard: values from the store, each remembered for some seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from uuid import UUID

import streamlit as st
from sqlalchemy import Engine
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session

from ci.pairs.calibrations import RunnerNoise, noise_of_runners
from collector.record import RunRecord
from dashboard.access.rights import NotAllowedError, Person, may_triage
from dashboard.triaged import Triaged
from db import queries
from db.access.values import AuditEntry, Triage, TriageState
from db.artefacts import StoredArtefact
from db.bisections.values import BisectionDetail
from db.errors import StoreError
from db.judged import triage
from db.reading.comparing import find_runs_to_compare
from db.reading.coverage_values import RunnerStanding
from db.reading.facet_values import Facets
from db.reading.fleet_values import CaseCost, FleetRun, KernelCost
from db.server.session import open_store
from db.values import CommitRef, Regression, RunDetail, RunSummary, Series, SeriesKey
from roofwatch.settings import load_settings

_FRESH_FOR_S = 10
_RECORDS_KEPT = 16
"""Each holds every sample of a run: some megabytes."""
_HISTORY_POINTS = 2_000
_ARTEFACTS_KEPT = 2
"""Each holds a whole file, as large as the view reads any."""


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
def read_facets(project: str) -> Facets:
    with _session() as session:
        return queries.read_facets(session, project)


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
def read_run_detail(run_id: str) -> RunDetail:
    """Everything that one run found.

    Raises:
        StoreError: there is no such run.
    """
    with _session() as session:
        detail = queries.run_detail(session, run_id)
    if detail is None:
        raise StoreError(f"run {run_id[:40]}: not stored; reload the page and choose another")
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
def list_triaged(project: str) -> list[Triaged]:
    """What was judged, of the newest commit first, with what people decided about each."""
    with _session() as session:
        regressions = queries.list_regressions(session, project)
        decided = queries.read_triage(session, project)
    # one that was judged this very moment does not stand in the other answer yet
    return [Triaged(one, decided.get(one.key) or Triage(triage.regression_id(one))) for one in regressions]


@st.cache_data(ttl=_FRESH_FOR_S, show_spinner=False)
def list_runner_standings(project: str) -> list[RunnerStanding]:
    """Every runner class with the cases of its newest run."""
    with _session() as session:
        return queries.list_runner_standings(session, project)


@st.cache_data(ttl=_FRESH_FOR_S, max_entries=_RECORDS_KEPT // 2, show_spinner="Reading both runs …")
def read_sides(project: str, base_sha: str, head_sha: str, runner_class: str) -> tuple[RunRecord, RunRecord] | None:
    """The runs of two commits to look at side by side; None where one has none on that runner class.

    Args:
        project: Its name.
        base_sha: Of the commit to compare against.
        head_sha: Of the new commit.
        runner_class: Empty for any.
    """
    with _session() as session:
        base, head = find_runs_to_compare(session, project, base_sha, head_sha, runner_class=runner_class or None)
        if base is None or head is None:
            return None
        return queries.load_record(session, base), queries.load_record(session, head)


@st.cache_data(ttl=_FRESH_FOR_S, show_spinner=False)
def list_audit(project: str, subject: str) -> list[AuditEntry]:
    """What was decided about one subject, newest first."""
    with _session() as session:
        return queries.list_entries(session, project, subject=subject)


@st.cache_data(ttl=_FRESH_FOR_S, show_spinner=False)
def list_regressions(project: str) -> list[Regression]:
    """Improvements and dismissed ones too, of the newest commit first."""
    with _session() as session:
        return queries.list_regressions(session, project)


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_RECORDS_KEPT, show_spinner="Reading the run …")
def read_record(run_id: str) -> RunRecord:
    """All that one run measured; frozen, so that all readers share one and none waits for a copy of every sample.

    Raises:
        StoreError: no such run.
    """
    with _session() as session:
        return queries.load_record(session, UUID(run_id))


@st.cache_data(ttl=_FRESH_FOR_S, show_spinner=False)
def read_case_history(project: str, case_id: str, *, with_every_run: bool = False) -> list[Series]:
    """The newest times of one case, a series for each implementation and runner class.

    Args:
        project: Its name.
        case_id: The case.
        with_every_run: Also sides of pairs, and runs of other branches: the runner is asked about, not the code.
    """
    with _session() as session:
        return queries.read_case_history(
            session,
            project,
            case_id,
            limit=_HISTORY_POINTS,
            include_pairs=with_every_run,
            include_branches=with_every_run,
        )


@st.cache_data(ttl=_FRESH_FOR_S, show_spinner=False)
def list_fleet_runs(
    project: str, *, limit: int, or_run: str | None = None, or_commit: str | None = None
) -> list[FleetRun]:
    """The newest first, and what is asked for besides, however old."""
    with _session() as session:
        return queries.list_fleet_runs(session, project, limit=limit, or_run=or_run, or_commit=or_commit)


@st.cache_data(ttl=_FRESH_FOR_S, show_spinner=False)
def read_run_energies(run_ids: tuple[str, ...]) -> dict[str, float]:
    with _session() as session:
        return queries.read_run_energies(session, run_ids)


@st.cache_data(ttl=_FRESH_FOR_S, show_spinner=False)
def list_kernel_costs(run_ids: tuple[str, ...]) -> list[KernelCost]:
    with _session() as session:
        return queries.list_kernel_costs(session, run_ids)


@st.cache_data(ttl=_FRESH_FOR_S, show_spinner=False)
def list_case_costs(run_ids: tuple[str, ...], *, limit: int) -> list[CaseCost]:
    """The dearest first."""
    with _session() as session:
        return queries.list_case_costs(session, run_ids, limit=limit)


@st.cache_data(ttl=_FRESH_FOR_S, show_spinner=False)
def read_runner_noise(project: str) -> list[RunnerNoise]:
    """What the stored calibrations say, by runner class. The samples behind it are not kept."""
    with _session() as session:
        return noise_of_runners(queries.list_pairs(session, project, of_one_commit=True))


@st.cache_data(ttl=_FRESH_FOR_S, show_spinner=False)
def list_artefacts(run_id: str) -> list[StoredArtefact]:
    with _session() as session:
        return queries.list_artefacts(session, UUID(run_id))


@st.cache_data(ttl=_FRESH_FOR_S, max_entries=_ARTEFACTS_KEPT, show_spinner="Reading the file …")
def read_artefact(run_id: str, sha256: str) -> bytes:
    """The whole content of a file that belongs to a run.

    Raises:
        StoreError: the run has no such content, or it is damaged.
    """
    try:
        return b"".join(queries.read_artefact(_store().engine, UUID(run_id), sha256))
    except (OperationalError, InterfaceError) as error:
        _store.clear()
        raise StoreError(f"the database was lost: {str(error.orig).strip()}") from None


@st.cache_data(ttl=_FRESH_FOR_S, show_spinner=False)
def read_newest_bisection(project: str, regression_id: UUID) -> BisectionDetail | None:
    """The bisection that was asked for last for a regression."""
    with _session() as session:
        asked = [one for one in queries.list_bisections(session, project) if one.regression_id == regression_id]
        return queries.read_bisection(session, asked[0].bisection_id) if asked else None


def decide(
    project: str, regression_id: UUID, state: TriageState, *, seen: TriageState, person: Person, reason: str
) -> None:
    """Decide about a regression in the name of somebody who signed in. Whoever may not is refused here, whatever
    buttons they found.

    Args:
        project: Its name.
        regression_id: Of the regression.
        state: What is decided.
        seen: What the person saw before.
        person: Who signed in.
        reason: Why.

    Raises:
        NotAllowedError: the person is not on the list of those who may.
        StaleTriageError: somebody decided otherwise in the meantime.
        StoreError: the project has no such regression, or the store was lost.
    """
    if not may_triage(person, project, load_settings().triagers):
        raise NotAllowedError(f"{person.shown_as} may not decide about regressions of {project}")
    with _session() as session, session.begin():
        triage.decide(
            session,
            project,
            regression_id,
            state,
            expected=seen,
            person=person.email,
            reason=reason,
            actor=person.actor,
        )
    list_triaged.clear(project)
    list_audit.clear()
