"""The only reads of the dashboard: values from the database, or a server in front of it, each remembered for some
seconds.

All readers share one answer, which nobody changes: none waits for a copy of it, and twenty take no more memory than
one.
How many are remembered is bounded for each question.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import ParamSpec, TypeVar, Unpack
from uuid import UUID

import streamlit as st
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from roofwatch.alerting import configured_ownership
from roofwatch.arguments import open_configured_store
from roofwatch.ci.ab.noise_floor import RunnerNoise, noise_of_runners
from roofwatch.ci.alerts.ownership import Ownership
from roofwatch.ci.errors import AlertError
from roofwatch.collector.errors import SpoolError
from roofwatch.collector.record.record import RunRecord
from roofwatch.dashboard.access.rights import NotAllowedError, Person, may_triage
from roofwatch.dashboard.errors import UnreadServerError
from roofwatch.dashboard.triaged import Triaged
from roofwatch.dashboard.variables import NO_SERVER, SERVER_VARIABLE
from roofwatch.db.artefacts import StoredArtefact
from roofwatch.db.auth.values import AuditEntry, TriageState
from roofwatch.db.bisections import BisectionDetail
from roofwatch.db.errors import StoreError
from roofwatch.db.queries import questions
from roofwatch.db.queries.coverage_values import RunnerStanding
from roofwatch.db.queries.filter_option_values import Facets
from roofwatch.db.queries.fleet_values import CaseCost, FleetRun, KernelCost, RunsAsked
from roofwatch.db.queries.question import Question
from roofwatch.db.queries.run_values import RunDetail
from roofwatch.db.queries.trend import TrendQuestion
from roofwatch.db.queries.trend_values import Trend, WindowEnd
from roofwatch.db.regressions import triage
from roofwatch.db.values import MeasuredCommit, Regression, Series, SeriesKey
from roofwatch.settings import SettingsError, load_settings
from roofwatch.store.database_source import DatabaseSource
from roofwatch.store.source import Source, open_source

P = ParamSpec("P")
A = TypeVar("A")

_FRESH_FOR_S = 10
_OWNERSHIP_FRESH_FOR_S = 600
_PROJECTS_KEPT = 8
"""Of what is asked for a whole project at once: up to some megabytes each."""
_ANSWERS_KEPT = 32
_RECORDS_KEPT = 8
"""Each holds all of a run: some megabytes."""
_ARTEFACTS_KEPT = 2
"""Each holds a whole file, as large as the view reads any."""


@dataclass(frozen=True)
class _Opened:
    source: Source
    closing: ExitStack


def _close(opened: _Opened) -> None:
    opened.closing.close()


@st.cache_resource(show_spinner="Opening the database …", on_release=_close)
def _store() -> _Opened:
    """What was chosen when the dashboard was started, else by the rule of all that reads."""
    server_url = os.environ.get(SERVER_VARIABLE)
    closing = ExitStack()
    if server_url == NO_SERVER:
        return _Opened(DatabaseSource(closing.enter_context(open_configured_store())), closing)
    return _Opened(closing.enter_context(open_source(server_url)), closing)


@contextmanager
def _reading() -> Iterator[Source]:
    """The one source of this process.

    Raises:
        StoreError: the store cannot be opened, or was lost, or all connections are in use, or the server cannot be
            asked or refuses; the next read tries again.
    """
    try:
        yield _store().source
    except SpoolError as error:
        raise UnreadServerError(str(error)) from None
    except PoolTimeoutError:
        raise StoreError(
            "all connections to the database are in use; try again, or raise database_connections"
        ) from None
    except (OperationalError, InterfaceError) as error:
        _store.clear()
        raise StoreError(f"the database was lost: {str(error.orig).strip()}") from None


def open_early() -> None:
    """Open what is read when the server starts; what is wrong is said by the first view that reads."""
    with suppress(StoreError, SettingsError, UnreadServerError), _reading():
        pass


def _ask(question: Question[P, A], *args: P.args, **kwargs: P.kwargs) -> A:
    with _reading() as source:
        return source.ask(question, *args, **kwargs)


def reads_through_server() -> bool:
    """Rather than from the database: nothing can be decided then."""
    return not isinstance(_store().source, DatabaseSource)


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_PROJECTS_KEPT, show_spinner=False)
def read_facets(project: str | None) -> Facets:
    """Of the first project where none is named."""
    return _ask(questions.read_facets, project)


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
def list_commits(project: str, *, runner_classes: tuple[str, ...] = ()) -> Sequence[MeasuredCommit]:
    """Those that have runs, on some runner classes alone where these are named, oldest first."""
    return _ask(questions.list_commits, project, runner_classes=runner_classes)


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
    return _ask(questions.read_runs_of_commits, project, base_sha, head_sha, runner_classes=runner_classes)


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_RECORDS_KEPT, show_spinner=False)
def read_runs(base_id: str, head_id: str) -> tuple[RunDetail, RunDetail]:
    """What two runs found.

    Raises:
        StoreError: there is no such run.
    """
    return _ask(questions.read_runs, base_id, head_id)


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_PROJECTS_KEPT, show_spinner=False)
def list_series_keys(project: str, *, include_dirty: bool, include_branches: bool) -> Sequence[SeriesKey]:
    """Of the default branch alone, unless others are asked for too."""
    return _ask(questions.list_series_keys, project, include_dirty=include_dirty, include_branches=include_branches)


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_ANSWERS_KEPT, show_spinner=False)
def read_trend(question: TrendQuestion) -> Trend:
    return _ask(questions.read_trend, question)


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_ANSWERS_KEPT, show_spinner=False)
def list_window_ends(question: TrendQuestion) -> Sequence[WindowEnd]:
    """Commits that the window of a trend may end with, the newest first."""
    return _ask(questions.list_window_ends, question)


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_PROJECTS_KEPT, show_spinner=False)
def list_triaged(project: str) -> Sequence[Triaged]:
    """What was judged, of the newest commit first, with what people decided about each."""
    return [Triaged(*one) for one in _ask(questions.list_triaged, project)]


def list_regressions(project: str) -> list[Regression]:
    """Improvements and dismissed ones too, of the newest commit first."""
    return [one.regression for one in list_triaged(project)]


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_PROJECTS_KEPT, show_spinner=False)
def list_runner_standings(
    project: str, *, runner_classes: tuple[str, ...] = (), branches: tuple[str, ...] = ()
) -> Sequence[RunnerStanding]:
    """Every runner class with the cases of its newest run, of some branches' commits alone where these are named."""
    return _ask(questions.list_runner_standings, project, runner_classes=runner_classes, branches=branches)


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
    return _ask(questions.read_case_of_both, project, base_sha, head_sha, case_id, runner_class=runner_class or None)


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_ANSWERS_KEPT, show_spinner=False)
def read_case_of_runs(base_id: str, head_id: str, case_id: str) -> tuple[RunRecord, RunRecord]:
    """Two runs as far as they are about one case, with every sample that is kept.

    Raises:
        StoreError: there is no such run.
    """
    return _ask(questions.read_case_of_runs, base_id, head_id, case_id)


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_ANSWERS_KEPT, show_spinner=False)
def list_audit(project: str, subject: str) -> Sequence[AuditEntry]:
    """What was decided about one subject, newest first."""
    return _ask(questions.list_decisions, project, UUID(subject))


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_RECORDS_KEPT, show_spinner="Reading the run …")
def read_record(run_id: str) -> RunRecord:
    """All that one run measured; frozen, so that all readers share one and none waits for a copy of every sample.

    Raises:
        StoreError: no such run.
    """
    return _ask(questions.load_record, run_id)


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
    return _ask(
        questions.read_case_history,
        project,
        case_id,
        with_every_run=with_every_run,
        runner_classes=runner_classes,
        branches=branches,
    )


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_ANSWERS_KEPT, show_spinner=False)
def list_fleet_runs(project: str, *, limit: int, **asked: Unpack[RunsAsked]) -> Sequence[FleetRun]:
    """The newest first, so many in all or of each runner class, and what is asked for besides, however old. Narrowed
    before they are counted: what else was measured meanwhile hides none of them.
    """
    return _ask(questions.list_fleet_runs, project, limit=limit, **asked)


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_ANSWERS_KEPT, show_spinner=False)
def read_run_energies(run_ids: tuple[str, ...]) -> Mapping[str, float]:
    return _ask(questions.read_run_energies, run_ids)


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_ANSWERS_KEPT, show_spinner=False)
def list_kernel_costs(run_ids: tuple[str, ...], *, case_ids: frozenset[str] | None = None) -> Sequence[KernelCost]:
    """Of some cases alone, unless these are None."""
    return _ask(questions.list_kernel_costs, run_ids, case_ids=case_ids)


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_ANSWERS_KEPT, show_spinner=False)
def list_case_costs(
    run_ids: tuple[str, ...], *, limit: int, case_ids: frozenset[str] | None = None
) -> Sequence[CaseCost]:
    """The dearest first; of some cases alone, unless these are None."""
    return _ask(questions.list_case_costs, run_ids, limit=limit, case_ids=case_ids)


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_PROJECTS_KEPT, show_spinner=False)
def read_runner_noise(project: str) -> Sequence[RunnerNoise]:
    """What the stored calibrations say, by runner class. The samples behind it are not kept."""
    pairs = _ask(questions.list_calibrations, project)
    return noise_of_runners(pairs)


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_ANSWERS_KEPT, show_spinner=False)
def list_artefacts(run_id: str) -> Sequence[StoredArtefact]:
    return _ask(questions.list_artefacts, run_id)


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_ARTEFACTS_KEPT, show_spinner="Reading the file …")
def read_artefact(run_id: str, sha256: str) -> bytes:
    """The whole content of a file that belongs to a run.

    Raises:
        StoreError: the run has no such content, or it is damaged.
    """
    with _reading() as source:
        (content,) = source.read_contents([(UUID(run_id), sha256)])
    return content


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_ARTEFACTS_KEPT, show_spinner="Reading the files …")
def read_contents(base_id: str, base_sha256: str, head_id: str, head_sha256: str) -> tuple[bytes, bytes]:
    """The whole content of a small file of each of two runs.

    Raises:
        StoreError: a run has no such content, or it is damaged.
    """
    with _reading() as source:
        base, head = source.read_contents([(UUID(base_id), base_sha256), (UUID(head_id), head_sha256)])
    return base, head


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_RECORDS_KEPT, show_spinner=False)
def read_kernel_of_run(run_id: str, kernel: str) -> RunRecord | None:
    """What a run found of one kernel; None where the run is gone."""
    return _ask(questions.read_kernel_of_run, run_id, kernel)


@st.cache_resource(ttl=_FRESH_FOR_S, max_entries=_ANSWERS_KEPT, show_spinner=False)
def read_newest_bisection(regression_id: UUID) -> BisectionDetail | None:
    """The bisection that was asked for last for a regression."""
    return _ask(questions.read_newest_bisection, regression_id)


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
        NotAllowedError: the person is not on the list of those who may, or a server is read through.
        StaleTriageError: somebody decided otherwise in the meantime.
        StoreError: the project has no such regression, or the store was lost.
    """
    if not may_triage(person, project, load_settings().triagers):
        raise NotAllowedError(f"{person.shown_as} may not decide about regressions of {project}")
    with _reading() as source:
        if not isinstance(source, DatabaseSource):
            raise NotAllowedError("nothing is decided here: this dashboard reads through a server")
        triage.set_triage(
            source.engine,
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
