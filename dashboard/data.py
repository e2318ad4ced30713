"""The only reads of the dashboard: values from the store, each remembered for some seconds.

All readers share one answer, which nobody changes: none waits for a copy of it, and twenty take no more memory than
one.
How many are remembered is bounded for each question.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Unpack
from uuid import UUID

import streamlit as st
from sqlalchemy import Engine
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session

from ci.errors import AlertError
from ci.owners import Ownership
from ci.pairs.calibrations import RunnerNoise, noise_of_runners
from collector.record import RunRecord
from dashboard.access.rights import NotAllowedError, Person, may_triage
from dashboard.triaged import Triaged
from db import queries
from db.access.values import AuditEntry, TriageState
from db.artefacts import StoredArtefact
from db.bisections.values import BisectionDetail
from db.errors import StoreError
from db.judged import triage
from db.reading import comparing, contents
from db.reading.coverage_values import RunnerStanding
from db.reading.facet_values import Facets
from db.reading.fleet_values import CaseCost, FleetRun, KernelCost, RunsAsked
from db.reading.trend import TrendQuestion
from db.reading.trend_values import Trend, WindowEnd
from db.server.session import open_store
from db.values import CommitRef, Regression, RunDetail, Series, SeriesKey
from roofwatch.ownership import configured_ownership
from roofwatch.settings import load_settings

_FRESH_FOR_S = 10
_OWNERSHIP_FRESH_FOR_S = 600
_PROJECTS_KEPT = 8
"""Of what is asked for a whole project at once: up to some megabytes each."""
_ANSWERS_KEPT = 32
_RECORDS_KEPT = 8
"""Each holds all of a run: some megabytes."""
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


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_PROJECTS_KEPT, show_spinner=False)
def read_facets(project: str | None) -> Facets:
    """Of the first project where none is named."""
    with _session() as session:
        return queries.read_facets(session, project)


@st.cache_data(ttl=_OWNERSHIP_FRESH_FOR_S, show_spinner=False)
def _configured_ownership() -> Ownership:
    """Files, or GitHub. Whoever cannot read them says nothing of owners: `roofwatch alert check` says what is amiss."""
    try:
        return configured_ownership(load_settings())
    except AlertError:
        return Ownership()


def owners_of(facets: Facets) -> dict[str, tuple[str, ...]]:
    """Who owns each kernel; only those that somebody is known to own."""
    ownership = replace(_configured_ownership(), source_paths=facets.source_files)
    found = {kernel: ownership.owners_of([kernel]) for kernel in {case.kernel for case in facets.cases}}
    return {kernel: owners for kernel, owners in found.items() if owners}


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_PROJECTS_KEPT, show_spinner=False)
def list_commits(project: str, *, runner_classes: tuple[str, ...] = ()) -> Sequence[CommitRef]:
    """Those that have runs, on some runner classes alone where these are named, oldest first."""
    with _session() as session:
        return queries.list_commits(session, project, runner_classes=runner_classes)


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_RECORDS_KEPT, show_spinner=False)
def read_runs_of_commits(
    project: str, base_sha: str, head_sha: str, *, runner_classes: tuple[str, ...] = ()
) -> tuple[RunDetail, RunDetail]:
    """What the runs found that speak for two commits; of the base the one on the runner class of the head, if any.

    Args:
        project: Its name.
        base_sha: Of the commit to compare against.
        head_sha: Of the new commit.
        runner_classes: Only runs on these; any where none is named.

    Raises:
        StoreError: a commit has no such run.
    """
    with _session() as session:
        return comparing.read_runs_of_commits(session, project, base_sha, head_sha, runner_classes=runner_classes)


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_RECORDS_KEPT, show_spinner=False)
def read_runs(base_id: str, head_id: str) -> tuple[RunDetail, RunDetail]:
    """What two runs found.

    Raises:
        StoreError: there is no such run.
    """
    with _session() as session:
        return comparing.read_runs(session, UUID(base_id), UUID(head_id))


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_PROJECTS_KEPT, show_spinner=False)
def list_series_keys(project: str, *, include_dirty: bool, include_branches: bool) -> Sequence[SeriesKey]:
    """Of the default branch alone, unless others are asked for too."""
    with _session() as session:
        return queries.list_series_keys(
            session, project, include_dirty=include_dirty, include_branches=include_branches
        )


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_ANSWERS_KEPT, show_spinner=False)
def read_trend(question: TrendQuestion) -> Trend:
    with _session() as session:
        return queries.read_trend(session, question)


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_ANSWERS_KEPT, show_spinner=False)
def list_window_ends(question: TrendQuestion) -> Sequence[WindowEnd]:
    """Commits that the window of a trend may end with, the newest first."""
    with _session() as session:
        return queries.list_window_ends(session, question)


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_PROJECTS_KEPT, show_spinner=False)
def list_triaged(project: str) -> Sequence[Triaged]:
    """What was judged, of the newest commit first, with what people decided about each."""
    with _session() as session:
        return [Triaged(*one) for one in queries.list_triaged(session, project)]


def list_regressions(project: str) -> list[Regression]:
    """Improvements and dismissed ones too, of the newest commit first."""
    return [one.regression for one in list_triaged(project)]


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_PROJECTS_KEPT, show_spinner=False)
def list_runner_standings(
    project: str, *, runner_classes: tuple[str, ...] = (), branches: tuple[str, ...] = ()
) -> Sequence[RunnerStanding]:
    """Every runner class with the cases of its newest run, of some branches' commits alone where these are named."""
    with _session() as session:
        return queries.list_runner_standings(session, project, runner_classes=runner_classes, branches=branches)


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_ANSWERS_KEPT, show_spinner=False)
def read_sides(
    project: str, base_sha: str, head_sha: str, case_id: str, runner_class: str
) -> tuple[RunRecord, RunRecord] | None:
    """The runs of two commits to look at side by side, as far as they are about one case; None where one has none on
    that runner class.

    Args:
        project: Its name.
        base_sha: Of the commit to compare against.
        head_sha: Of the new commit.
        case_id: The case.
        runner_class: Empty for any.
    """
    with _session() as session:
        return comparing.read_case_of_both(
            session, project, base_sha, head_sha, case_id, runner_class=runner_class or None
        )


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_ANSWERS_KEPT, show_spinner=False)
def read_case_of_runs(base_id: str, head_id: str, case_id: str) -> tuple[RunRecord, RunRecord]:
    """Two runs as far as they are about one case, with every sample that is kept.

    Raises:
        StoreError: there is no such run.
    """
    with _session() as session:
        return comparing.read_case_of_runs(session, UUID(base_id), UUID(head_id), case_id)


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_ANSWERS_KEPT, show_spinner=False)
def list_audit(project: str, subject: str) -> Sequence[AuditEntry]:
    """What was decided about one subject, newest first."""
    with _session() as session:
        return queries.list_entries(session, project, subject=subject)


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_RECORDS_KEPT, show_spinner="Reading the run …")
def read_record(run_id: str) -> RunRecord:
    """All that one run measured; frozen, so that all readers share one and none waits for a copy of every sample.

    Raises:
        StoreError: no such run.
    """
    with _session() as session:
        return queries.load_record(session, UUID(run_id))


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_ANSWERS_KEPT, show_spinner=False)
def read_case_history(
    project: str,
    case_id: str,
    *,
    with_every_run: bool = False,
    runner_classes: tuple[str, ...] = (),
    branches: tuple[str, ...] = (),
) -> Sequence[Series]:
    """The newest times of one case, a series for each implementation and runner class.

    Args:
        project: Its name.
        case_id: The case.
        with_every_run: Also sides of pairs, and runs of other branches: the runner is asked about, not the code.
        runner_classes: Only on these; any where none is named.
        branches: Only commits that were measured under the name of one of these; likewise.
    """
    with _session() as session:
        return queries.read_case_history(
            session,
            project,
            case_id,
            limit=_HISTORY_POINTS,
            include_pairs=with_every_run,
            include_branches=with_every_run,
            runner_classes=runner_classes,
            branches=branches,
        )


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_ANSWERS_KEPT, show_spinner=False)
def list_fleet_runs(project: str, *, limit: int, **asked: Unpack[RunsAsked]) -> Sequence[FleetRun]:
    """The newest first, so many in all or of each runner class, and what is asked for besides, however old. Narrowed
    before they are counted: what else was measured meanwhile hides none of them.
    """
    with _session() as session:
        return queries.list_fleet_runs(session, project, limit=limit, **asked)


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_ANSWERS_KEPT, show_spinner=False)
def read_run_energies(run_ids: tuple[str, ...]) -> Mapping[str, float]:
    with _session() as session:
        return queries.read_run_energies(session, run_ids)


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_ANSWERS_KEPT, show_spinner=False)
def list_kernel_costs(run_ids: tuple[str, ...], *, case_ids: frozenset[str] | None = None) -> Sequence[KernelCost]:
    """Of some cases alone, unless these are None."""
    with _session() as session:
        return queries.list_kernel_costs(session, run_ids, case_ids=case_ids)


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_ANSWERS_KEPT, show_spinner=False)
def list_case_costs(
    run_ids: tuple[str, ...], *, limit: int, case_ids: frozenset[str] | None = None
) -> Sequence[CaseCost]:
    """The dearest first; of some cases alone, unless these are None."""
    with _session() as session:
        return queries.list_case_costs(session, run_ids, limit=limit, case_ids=case_ids)


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_PROJECTS_KEPT, show_spinner=False)
def read_runner_noise(project: str) -> Sequence[RunnerNoise]:
    """What the stored calibrations say, by runner class. The samples behind it are not kept."""
    with _session() as session:
        return noise_of_runners(queries.list_pairs(session, project, of_one_commit=True))


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_ANSWERS_KEPT, show_spinner=False)
def list_artefacts(run_id: str) -> Sequence[StoredArtefact]:
    with _session() as session:
        return queries.list_artefacts(session, UUID(run_id))


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_ARTEFACTS_KEPT, show_spinner="Reading the file …")
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


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_ARTEFACTS_KEPT, show_spinner="Reading the files …")
def read_contents(base_id: str, base_sha256: str, head_id: str, head_sha256: str) -> tuple[bytes, bytes]:
    """The whole content of a small file of each of two runs.

    Raises:
        StoreError: a run has no such content, or it is damaged.
    """
    with _session() as session:
        base, head = contents.read_contents(session, [(UUID(base_id), base_sha256), (UUID(head_id), head_sha256)])
        return base, head


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_RECORDS_KEPT, show_spinner=False)
def read_kernel_of_run(run_id: str, kernel: str) -> RunRecord | None:
    """What a run found of one kernel; None where the run is gone."""
    with _session() as session:
        return comparing.read_kernel_of_run(session, UUID(run_id), kernel)


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_ANSWERS_KEPT, show_spinner=False)
def read_newest_bisection(regression_id: UUID) -> BisectionDetail | None:
    """The bisection that was asked for last for a regression."""
    with _session() as session:
        return queries.read_newest_bisection(session, regression_id)


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
