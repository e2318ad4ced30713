"""All reads of the dashboard, from the database or a server, cached for some seconds."""

import gc
import os
from collections.abc import Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

import streamlit as st
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session

from roofwatch.ci.ab.noise_floor import RunnerNoise, noise_of_runners
from roofwatch.ci.alerts.ownership import Ownership
from roofwatch.ci.messages import AlertError
from roofwatch.ci.report.pull_request import PullRequestJudgement, judge_pull_request
from roofwatch.configuration.arguments import open_configured_store
from roofwatch.configuration.settings import load_settings
from roofwatch.dashboard.access import NotAllowedError, reader_names_here
from roofwatch.db.errors import StoreError
from roofwatch.db.projects import record_name
from roofwatch.db.queries import questions
from roofwatch.db.queries.questions import Question
from roofwatch.db.regressions.deciding import TriageDecision, apply_decision
from roofwatch.db.regressions.decisions import Signature
from roofwatch.db.schema.subjects import Subjects
from roofwatch.model.errors import SpoolError
from roofwatch.model.history import ChangePoint, Regression
from roofwatch.model.record import RunRecord
from roofwatch.model.stored_results import FilterOptions
from roofwatch.model.triage import TriagedRegression
from roofwatch.regressions.alerting import configured_ownership
from roofwatch.store.database_source import DatabaseSource
from roofwatch.store.reading import Source, open_source

P = ParamSpec("P")
A = TypeVar("A")

SERVER_VARIABLE = "ROOFWATCH_DASHBOARD_SERVER"
"""Environment variable with the server's URL; unset to follow the settings."""
DATABASE = ""
"""Value that selects the database, even if the settings name a server."""
_FRESH_FOR_S = 10
_ANSWERS_KEPT = 64
_READERS_KEPT = 1_000
_FILES_KEPT = 2


class UnreadServerError(StoreError):
    """The server cannot be reached, or refuses."""


class RestrictedError(StoreError):
    """The person may not read this."""


@st.cache_resource(
    show_spinner="Opening the database …", on_release=lambda opened: opened[1].close()
)
def _store() -> tuple[Source, ExitStack]:
    """Open what is read, and return how to close it."""
    gc.freeze()  # full collections then skip the 200,000 objects of imported modules
    server_url = os.environ.get(SERVER_VARIABLE)
    closing = ExitStack()
    # an empty variable wins over a server in the settings
    if server_url == DATABASE:
        return DatabaseSource(closing.enter_context(open_configured_store())), closing
    return closing.enter_context(open_source(server_url)), closing


@contextmanager
def _reading() -> Iterator[Source]:
    """Return the source of this process.

    Raises:
        StoreError: the database or server failed; the next read tries again.
    """
    try:
        yield _store()[0]
    except SpoolError as error:
        raise UnreadServerError(str(error)) from None
    # many readers at once; the database itself is well
    except PoolTimeoutError:
        raise StoreError(
            "all connections to the database are in use; try again, or raise database_connections"
        ) from None
    except (OperationalError, InterfaceError) as error:
        _store.clear()
        raise StoreError(f"the database was lost: {str(error.orig).strip()}") from None


def reads_through_server() -> bool:
    """Whether a server is read, which makes the dashboard read-only."""
    return not isinstance(_store()[0], DatabaseSource)


def ask(question: Question[P, A], *args: P.args, **kwargs: P.kwargs) -> A:
    """Return the cached answer to a question; all readers share it, so it must not be modified.

    Raises:
        RestrictedError: the person of this session may not read it.
        StoreError: there is no answer, or the source failed.
    """
    _require_access(question.subjects(*args, **kwargs))
    answer: A = _remembered(question, args, tuple(sorted(kwargs.items())))
    return answer


def _require_access(subjects: Subjects) -> None:
    """Check that the person of this session may read everything that is asked for.

    All readers share the answers, so this is checked before a remembered one is used.
    """
    reader_names = reader_names_here()
    if reader_names is None:
        return
    projects = set(map(record_name, subjects.projects))
    if subjects.run_ids or subjects.regression_ids:
        run_ids = sorted(subjects.run_ids)
        regression_ids = sorted(subjects.regression_ids)
        projects.update(_projects_of(tuple(run_ids), tuple(regression_ids)))
    # what is not stored and what is hidden look the same to a stranger
    if projects - _readable(tuple(sorted(projects)), reader_names):
        raise RestrictedError("this is not stored, or it is restricted to people who sign in")


@st.cache_resource(
    ttl=_FRESH_FOR_S,
    max_entries=_READERS_KEPT,
    show_spinner=False,
)
def _projects_of(run_ids: tuple[UUID, ...], regression_ids: tuple[UUID, ...]) -> Sequence[str]:
    with _reading() as source:
        return source.ask(questions.list_projects_of, run_ids, regression_ids)


@st.cache_resource(
    ttl=_FRESH_FOR_S,
    max_entries=_READERS_KEPT,
    show_spinner=False,
)
def _readable(projects: tuple[str, ...], reader_names: tuple[str, ...]) -> frozenset[str]:
    with _reading() as source:
        readable = source.ask(questions.list_readable, projects, reader_names)
    return frozenset(readable)


@st.cache_resource(
    ttl=_FRESH_FOR_S,
    max_entries=_ANSWERS_KEPT,
    show_spinner=False,
    hash_funcs={Question: lambda question: question.name},
)
def _remembered(
    question: Question[..., Any],
    args: tuple[Hashable, ...],
    named: tuple[tuple[str, Hashable], ...],
) -> Any:
    with _reading() as source:
        return source.ask(question, *args, **dict(named))


def list_projects() -> Sequence[str]:
    """List the projects that the person of this session may read, by name."""
    stored_projects = _stored_projects()
    reader_names = reader_names_here()
    if reader_names is None:
        return stored_projects
    # one question for all projects rather than one each
    readable = _readable(tuple(stored_projects), reader_names)
    return [project for project in stored_projects if project in readable]


def has_restricted_projects() -> bool:
    """Whether there are projects that the person of this session may not read."""
    return len(list_projects()) < len(_stored_projects())


@st.cache_resource(ttl=_FRESH_FOR_S, show_spinner=False)
def _stored_projects() -> Sequence[str]:
    with _reading() as source:
        return source.list_projects()


def read_contents(*files: tuple[str, str]) -> list[bytes]:
    """Read files of runs.

    Args:
        files: Run id and sha256 of each.

    Raises:
        RestrictedError: the person of this session may not read them.
        StoreError: a file is not stored, or is damaged.
    """
    _require_access(Subjects(run_ids=frozenset(UUID(run_id) for run_id, _ in files)))
    return _remembered_contents(*files)


@st.cache_resource(
    ttl=_FRESH_FOR_S,
    max_entries=_FILES_KEPT,
    show_spinner="Reading the file …",
)
def _remembered_contents(*files: tuple[str, str]) -> list[bytes]:
    with _reading() as source:
        return [source.read_artefact(UUID(run_id), sha256) for run_id, sha256 in files]


@st.cache_data(ttl=_FRESH_FOR_S, show_spinner=False)
def _configured_ownership() -> Ownership:
    """Read the ownership from files; empty if it fails, which `roofwatch alert check` reports."""
    try:
        return configured_ownership(load_settings())
    except AlertError:
        return Ownership()


def owners_of(facets: FilterOptions) -> dict[str, tuple[str, ...]]:
    """Return the owners of each kernel that has any."""
    ownership = replace(_configured_ownership(), source_paths=facets.source_files)
    kernels = {case.kernel for case in facets.cases}
    owners_by_kernel = {kernel: ownership.owners_of([kernel]) for kernel in kernels}
    return {kernel: owners for kernel, owners in owners_by_kernel.items() if owners}


def read_sides(change: ChangePoint) -> tuple[RunRecord, RunRecord] | None:
    """Read what the runs before and at a change know of its case; None if one is gone, or if
    another tool measured it.
    """
    series = change.series
    # the other tool's files have no record to show
    if series.is_imported:
        return None
    return ask(
        questions.read_case_of_both,
        series.project,
        change.previous_commit.sha,
        change.commit.sha,
        series.case_id,
        runner_class=series.runner_class or None,
    )


def list_regressions(project: str) -> list[Regression]:
    """List all regressions, also improvements and dismissed ones, newest commit first."""
    return [triaged.regression for triaged in ask(questions.list_triaged, project)]


def read_runner_noise(project: str) -> Sequence[RunnerNoise]:
    """Read the noise of each runner class from stored calibrations."""
    pairs = ask(questions.list_calibrations, project)
    return noise_of_runners(pairs)


def judge_pair(base_id: UUID, head_id: UUID) -> PullRequestJudgement:
    """Judge the records of a pair.

    Raises:
        RestrictedError: the person of this session may not read them.
        StoreError: the samples of a run are no longer stored.
    """
    _require_access(Subjects(run_ids=frozenset([base_id, head_id])))
    return _remembered_judgement(base_id, head_id)


@st.cache_resource(
    ttl=_FRESH_FOR_S,
    max_entries=_FILES_KEPT,
    show_spinner="Judging the pair …",
)
def _remembered_judgement(base_id: UUID, head_id: UUID) -> PullRequestJudgement:
    with _reading() as source:
        base = source.load_record(base_id)
        head = source.load_record(head_id)
    return judge_pull_request(base, head)


def decide(
    project: str,
    triaged: TriagedRegression,
    decision: TriageDecision,
    by: Signature,
) -> str:
    """Store a decision about a regression, and return it in words.

    Raises:
        NotAllowedError: a server is read.
        RestrictedError: the person of this session may not read the project.
        StaleTriageError: the state has changed meanwhile.
        StoreError: there is no such regression, a value is wrong, or the database failed.
    """
    _require_access(Subjects(projects=frozenset([project])))
    with _reading() as source:
        if not isinstance(source, DatabaseSource):
            raise NotAllowedError("this dashboard is read-only: it reads through a server")
        with Session(source.engine) as session, session.begin():
            # refused if somebody decided since this page was drawn
            seen = replace(decision, expected=triaged.triage.state)
            outcome = apply_decision(session, project, triaged, seen, by)
    # the next page must show the decision, not the answer from before it
    _remembered.clear()
    return outcome
