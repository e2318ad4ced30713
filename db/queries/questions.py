"""The questions of a reader, declared once: the dashboard asks them of a session, or of a server in front of the store.

What may stand in one is bounded by the types of its parameters, since it may come from anybody with a token.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any
from uuid import UUID

from pydantic import AfterValidator, Field
from sqlalchemy.orm import Session

from roofwatch.collector.record.metrics import METRICS
from roofwatch.collector.record.record import RunRecord
from roofwatch.db.artefacts import StoredArtefact
from roofwatch.db.artefacts import list_artefacts as query_list_artefacts
from roofwatch.db.auth.audit import list_entries as query_list_entries
from roofwatch.db.auth.values import AuditEntry, Triage
from roofwatch.db.bisections import BisectionDetail
from roofwatch.db.bisections import read_newest_bisection as query_read_newest_bisection
from roofwatch.db.queries import comparing
from roofwatch.db.queries.case_history import read_case_history as query_read_case_history
from roofwatch.db.queries.coverage import list_runner_standings as query_list_runner_standings
from roofwatch.db.queries.coverage_values import RunnerStanding
from roofwatch.db.queries.filter_option_values import Facets
from roofwatch.db.queries.filter_options import read_facets as query_read_facets
from roofwatch.db.queries.fleet import list_case_costs as query_list_case_costs
from roofwatch.db.queries.fleet import list_fleet_runs as query_list_fleet_runs
from roofwatch.db.queries.fleet import list_kernel_costs as query_list_kernel_costs
from roofwatch.db.queries.fleet import read_run_energies as query_read_run_energies
from roofwatch.db.queries.fleet_values import CaseCost, FleetRun, KernelCost
from roofwatch.db.queries.pairs import list_pairs as query_list_pairs
from roofwatch.db.queries.question import Concerned, Question, question
from roofwatch.db.queries.records import load_record as query_load_record
from roofwatch.db.queries.run_values import RunDetail
from roofwatch.db.queries.runs import list_commits as query_list_commits
from roofwatch.db.queries.series import list_series_keys as query_list_series_keys
from roofwatch.db.queries.trend import TrendQuestion
from roofwatch.db.queries.trend import list_window_ends as query_list_window_ends
from roofwatch.db.queries.trend import read_trend as query_read_trend
from roofwatch.db.queries.trend_values import Trend, WindowEnd
from roofwatch.db.regressions.judgements import list_triaged as query_list_triaged
from roofwatch.db.regressions.triage import TRIAGE_ACTION
from roofwatch.db.values import MeasuredCommit, Pair, Regression, Series, SeriesKey

_HISTORY_POINTS = 2_000
_MOST_KEYS = 2_000
"""Series of one trend: many more than anybody tells apart in a figure."""
_NO_CONTROLS = r"^[^\x00-\x1f\x7f]*$"
_UUID = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"


def _of_known_metrics(asked: TrendQuestion) -> TrendQuestion:
    if len(asked.keys) > _MOST_KEYS:
        raise ValueError(f"{len(asked.keys)} series, at most {_MOST_KEYS} may be asked for at once")
    if any(key.metric not in METRICS for key in asked.keys):
        raise ValueError("a metric that is not known here")
    if asked.length is not None and not 1 <= asked.length <= 1_000_000:
        raise ValueError("a window has 1 to 1,000,000 commits")
    return asked


Word = Annotated[str, Field(max_length=500, pattern=_NO_CONTROLS)]
Words = Annotated[tuple[Word, ...], Field(max_length=10_000)]
RunId = Annotated[str, Field(pattern=_UUID)]
RunIds = Annotated[tuple[RunId, ...], Field(max_length=10_000)]
CaseIds = Annotated[frozenset[Word], Field(max_length=100_000)]
Count = Annotated[int, Field(ge=1, le=10_000)]
TrendAsked = Annotated[TrendQuestion, AfterValidator(_of_known_metrics)]


def _of_project(asked: Any) -> Concerned:
    return Concerned(projects=[] if asked.project is None else [asked.project])


def _of_trend(asked: Any) -> Concerned:
    return Concerned(projects={asked.trend.project, *(key.project for key in asked.trend.keys)})


def _of_run(asked: Any) -> Concerned:
    return Concerned(run_ids=[asked.run_id])


def _of_runs(asked: Any) -> Concerned:
    return Concerned(run_ids=asked.run_ids)


def _of_both_runs(asked: Any) -> Concerned:
    return Concerned(run_ids=[asked.base_id, asked.head_id])


def _of_regression(asked: Any) -> Concerned:
    return Concerned(bisected=[asked.regression_id])


@question(_of_project, known_projects="among")
def read_facets(session: Session, project: Word | None = None, *, among: frozenset[str] | None = None) -> Facets:
    """Of the first project where none is named; of other projects than those of `among` nothing is told."""
    if among is None:
        return query_read_facets(session, project)
    found = query_read_facets(session, min(among, default="") if project is None else project)
    return replace(found, projects=tuple(name for name in found.projects if name in among))


@question(_of_project)
def list_commits(session: Session, project: Word, *, runner_classes: Words = ()) -> list[MeasuredCommit]:
    return query_list_commits(session, project, runner_classes=runner_classes)


@question(_of_project)
def read_runs_of_commits(
    session: Session, project: Word, base_sha: Word, head_sha: Word, *, runner_classes: Words = ()
) -> tuple[RunDetail, RunDetail]:
    return comparing.read_runs_of_commits(session, project, base_sha, head_sha, runner_classes=runner_classes)


@question(_of_both_runs)
def read_runs(session: Session, base_id: RunId, head_id: RunId) -> tuple[RunDetail, RunDetail]:
    return comparing.read_runs(session, UUID(base_id), UUID(head_id))


@question(_of_project)
def list_series_keys(
    session: Session, project: Word, *, include_dirty: bool, include_branches: bool
) -> list[SeriesKey]:
    return query_list_series_keys(session, project, include_dirty=include_dirty, include_branches=include_branches)


@question(_of_trend)
def read_trend(session: Session, trend: TrendAsked) -> Trend:
    return query_read_trend(session, trend)


@question(_of_trend)
def list_window_ends(session: Session, trend: TrendAsked) -> list[WindowEnd]:
    return query_list_window_ends(session, trend)


@question(_of_project)
def list_triaged(session: Session, project: Word) -> list[tuple[Regression, Triage]]:
    return query_list_triaged(session, project)


@question(_of_project)
def list_runner_standings(
    session: Session, project: Word, *, runner_classes: Words = (), branches: Words = ()
) -> list[RunnerStanding]:
    return query_list_runner_standings(session, project, runner_classes=runner_classes, branches=branches)


@question(_of_project)
def read_case_of_both(
    session: Session, project: Word, base_sha: Word, head_sha: Word, case_id: Word, *, runner_class: Word | None = None
) -> tuple[RunRecord, RunRecord] | None:
    return comparing.read_case_of_both(session, project, base_sha, head_sha, case_id, runner_class=runner_class)


@question(_of_both_runs)
def read_case_of_runs(session: Session, base_id: RunId, head_id: RunId, case_id: Word) -> tuple[RunRecord, RunRecord]:
    return comparing.read_case_of_runs(session, UUID(base_id), UUID(head_id), case_id)


@question(_of_project)
def list_decisions(session: Session, project: Word, regression_id: UUID) -> list[AuditEntry]:
    """Only these: the rest of the audit trail is for administrators."""
    found = query_list_entries(session, project, subject=str(regression_id))
    return [entry for entry in found if entry.action == TRIAGE_ACTION]


@question(_of_run)
def load_record(session: Session, run_id: RunId) -> RunRecord:
    return query_load_record(session, UUID(run_id))


@question(_of_project)
def read_case_history(
    session: Session,
    project: Word,
    case_id: Word,
    *,
    with_every_run: bool = False,
    runner_classes: Words = (),
    branches: Words = (),
) -> list[Series]:
    """With sides of pairs and runs of other branches too, where every run is asked for."""
    return query_read_case_history(
        session,
        project,
        case_id,
        limit=_HISTORY_POINTS,
        include_pairs=with_every_run,
        include_branches=with_every_run,
        runner_classes=runner_classes,
        branches=branches,
    )


@question(_of_project)
def list_fleet_runs(
    session: Session,
    project: Word,
    *,
    limit: Count,
    or_run: Word | None = None,
    or_commit: Word | None = None,
    runner_classes: Words = (),
    branches: Words = (),
    of_each_class: bool = False,
    with_quarantine: bool = False,
) -> list[FleetRun]:
    return query_list_fleet_runs(
        session,
        project,
        limit=limit,
        or_run=or_run,
        or_commit=or_commit,
        runner_classes=runner_classes,
        branches=branches,
        of_each_class=of_each_class,
        with_quarantine=with_quarantine,
    )


@question(_of_runs)
def read_run_energies(session: Session, run_ids: RunIds) -> dict[str, float]:
    return query_read_run_energies(session, run_ids)


@question(_of_runs)
def list_kernel_costs(session: Session, run_ids: RunIds, *, case_ids: CaseIds | None = None) -> list[KernelCost]:
    return query_list_kernel_costs(session, run_ids, case_ids=case_ids)


@question(_of_runs)
def list_case_costs(
    session: Session, run_ids: RunIds, *, limit: Count, case_ids: CaseIds | None = None
) -> list[CaseCost]:
    return query_list_case_costs(session, run_ids, limit=limit, case_ids=case_ids)


@question(_of_project)
def list_calibrations(session: Session, project: Word) -> list[Pair]:
    return query_list_pairs(session, project, of_one_commit=True)


@question(_of_run)
def list_artefacts(session: Session, run_id: RunId) -> list[StoredArtefact]:
    return query_list_artefacts(session, UUID(run_id))


@question(_of_run)
def read_kernel_of_run(session: Session, run_id: RunId, kernel: Word) -> RunRecord | None:
    return comparing.read_kernel_of_run(session, UUID(run_id), kernel)


@question(_of_regression)
def read_newest_bisection(session: Session, regression_id: UUID) -> BisectionDetail | None:
    return query_read_newest_bisection(session, regression_id)


QUESTIONS: dict[str, Question[..., Any]] = {
    value.name: value for value in list(globals().values()) if isinstance(value, Question)
}
