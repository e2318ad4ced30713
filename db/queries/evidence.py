"""Evidence for the cause of a change, and for its cost: code, checks, counters, profiles, shares of
steps.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, Select, Text, func, literal, select, tuple_
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session

from roofwatch.db.schema.measurements import (
    AccuracyRow,
    CaseDocumentRow,
    CompilationRow,
    ImportedRow,
    StaticFactRow,
)
from roofwatch.db.schema.run_filter import COMMIT_COLUMNS, is_in_series, is_number_of, project_id
from roofwatch.db.schema.runs import CaseRow, CommitRow, EnvironmentRow, RunRow
from roofwatch.db.schema.subjects import ProjectName
from roofwatch.model.case_key import CaseKey
from roofwatch.model.history import CommitRef
from roofwatch.model.machine import Outcome
from roofwatch.model.metrics import SHARE_OF_STEP
from roofwatch.model.results import CaseProfile, Counters
from roofwatch.model.series_filter import Word
from roofwatch.model.stored_results import CountedRun, KernelFunction, ProfiledRun, StepShare


def list_changed_code(session: Session, project: str, row_ids: Collection[int]) -> set[CaseKey]:
    """List subjects with a function whose machine code differs between two runs."""
    fact = StaticFactRow
    # OFFSET 0 prevents a join with runs before the cases are narrowed
    compiled = (
        select(
            CaseRow.name,
            fact.implementation,
            fact.function,
            fact.target,
            fact.code_hash,
            CompilationRow.run_number,
        )
        .select_from(CompilationRow)
        .join(fact, fact.id == CompilationRow.static_fact_id)
        .join(CaseRow, CaseRow.id == fact.case_id)
        .where(fact.case_id.in_(row_ids))
        .offset(0)
        .subquery("compiled")
        .c
    )
    # a function without code counts as other code: it did not compile
    code_count = func.count(func.distinct(func.coalesce(compiled.code_hash, "")))
    query = (
        select(compiled.name, compiled.implementation)
        .where(is_number_of(compiled.run_number, is_in_series(project, include_pairs=True)))
        .group_by(
            compiled.name,
            compiled.implementation,
            compiled.function,
            compiled.target,
        )
        .having(code_count > 1)
    )
    return _subjects(session, query)


def list_failed_checks(session: Session, project: str, row_ids: Collection[int]) -> set[CaseKey]:
    """List subjects whose accuracy check failed in any run."""
    query = _results_of(AccuracyRow, row_ids).where(
        AccuracyRow.outcome != Outcome.OK.value,
        is_number_of(AccuracyRow.run_number, is_in_series(project, include_pairs=True)),
    )
    return _subjects(session, query)


def list_imported(session: Session, row_ids: Collection[int]) -> set[CaseKey]:
    """List subjects with values of other tools."""
    return _subjects(session, _results_of(ImportedRow, row_ids))


def list_marked_controls(session: Session, row_ids: Collection[int]) -> set[CaseKey]:
    """List subjects that an import marked as rows of a library."""
    query = _results_of(ImportedRow, row_ids)
    return _subjects(session, query.where(ImportedRow.is_control))


def _results_of(
    table: type[AccuracyRow | ImportedRow], row_ids: Collection[int]
) -> Select[str, str]:
    """Select the case and implementation of each result of some cases."""
    return (
        select(CaseRow.name, table.implementation)
        .join(CaseRow, CaseRow.id == table.case_id)
        .where(table.case_id.in_(row_ids))
    )


def _subjects(session: Session, query: Select[Any, Any]) -> set[CaseKey]:
    rows = session.execute(query.distinct())
    return {(name, implementation) for name, implementation in rows}


def read_counted_runs(
    session: Session,
    project: str,
    subjects: Collection[CaseKey],
) -> list[CountedRun]:
    """Read the hardware counters of some subjects, ordered by commit, then by time."""
    runs: defaultdict[tuple[UUID, CommitRef, str, CaseKey], list[Counters]] = defaultdict(list)
    documents = _documents(session, project, subjects, "counters")
    for run_id, runner_class, commit, document in documents:
        counters = Counters.model_validate(document)
        subject = counters.case_id, counters.implementation
        runs[run_id, commit, runner_class, subject].append(counters)
    counted_runs: list[CountedRun] = []
    for (_, commit, runner_class, (case_id, implementation)), launches in runs.items():
        counted = CountedRun(
            case_id=case_id,
            implementation=implementation,
            runner_class=runner_class,
            commit=commit,
            counters=tuple(launches),
        )
        counted_runs.append(counted)
    return counted_runs


def read_profiled_runs(
    session: Session,
    project: str,
    subjects: Collection[CaseKey],
) -> list[ProfiledRun]:
    """Read the profiles of some subjects, ordered by commit, then by time."""
    return [
        ProfiledRun(runner_class, commit, CaseProfile.model_validate(document))
        for _, runner_class, commit, document in _documents(session, project, subjects, "profiles")
    ]


def list_step_shares(session: Session, project: ProjectName, runner_class: Word) -> list[StepShare]:
    """List the shares of each step in its newest run on a runner class."""
    # the newest run may have measured only some steps, so the newest of each step counts
    newest = (
        select(ImportedRow.case_id, ImportedRow.implementation, ImportedRow.run_number)
        .join(CaseRow, CaseRow.id == ImportedRow.case_id)
        .join(RunRow, RunRow.number == ImportedRow.run_number)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(
            is_in_series(project, include_pairs=True),
            CaseRow.project_id == project_id(project),
            ImportedRow.metric.startswith(SHARE_OF_STEP),
            EnvironmentRow.runner_class == runner_class,
        )
        .ext(distinct_on(ImportedRow.case_id, ImportedRow.implementation))
        .order_by(
            ImportedRow.case_id,
            ImportedRow.implementation,
            RunRow.started_at.desc(),
            RunRow.number.desc(),
        )
        .subquery("newest")
    )
    row = ImportedRow
    query = (
        select(CaseRow.name, row.implementation, row.metric, row.value, row.low, row.high)
        .join(CaseRow, CaseRow.id == row.case_id)
        .join(
            newest,
            (newest.c.case_id == row.case_id) & (newest.c.implementation == row.implementation),
        )
        .where(row.run_number == newest.c.run_number, row.metric.startswith(SHARE_OF_STEP))
        .order_by(CaseRow.name, row.implementation, row.position)
    )
    return [
        StepShare(
            name,
            implementation,
            metric.removeprefix(SHARE_OF_STEP),
            value,
            *quartiles,
        )
        for name, implementation, metric, value, *quartiles in session.execute(query)
        if value is not None
    ]


def list_functions(session: Session, project: ProjectName, kernel: Word) -> list[KernelFunction]:
    """List the compiled functions of a kernel's cases."""
    query = (
        select(CaseRow.name, StaticFactRow.implementation, StaticFactRow.function)
        .join(CaseRow, CaseRow.id == StaticFactRow.case_id)
        .where(CaseRow.project_id == project_id(project), CaseRow.kernel == kernel)
        .distinct()
    )
    return [KernelFunction(*row) for row in session.execute(query)]


def _documents(
    session: Session,
    project: str,
    subjects: Collection[CaseKey],
    kind: str,
) -> Iterator[tuple[UUID, str, CommitRef, dict[str, Any]]]:
    """Read documents of one kind with the run id, runner class and commit of each."""
    row = CaseDocumentRow
    # arrays, because thousands of pairs in the statement take Postgres seconds to plan
    names = literal([name for name, _ in subjects], ARRAY(Text))
    implementations = literal([implementation for _, implementation in subjects], ARRAY(Text))
    subject_table = func.unnest(names, implementations).table_valued("name", "implementation")
    pairs = subject_table.render_derived()
    query = (
        select(RunRow.run_id, EnvironmentRow.runner_class, row.document, *COMMIT_COLUMNS)
        .join_from(row, CaseRow, CaseRow.id == row.case_id)
        .join(RunRow, RunRow.number == row.run_number)
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(
            is_in_series(project, include_pairs=True),
            CaseRow.project_id == project_id(project),
            tuple_(CaseRow.name, row.implementation).in_(
                select(pairs.c.name, pairs.c.implementation)
            ),
            row.kind == kind,
        )
        .order_by(
            CommitRow.first_parent_count,
            CommitRow.sha,
            RunRow.started_at,
            RunRow.run_id,
            row.position,
        )
    )
    for run_id, runner_class, document, *commit in session.execute(query):
        yield run_id, runner_class, CommitRef(*commit), document
