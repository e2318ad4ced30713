"""Evidence for the cause of a change, and for its cost: code, checks, counters, profiles, shares of
steps.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, Text, func, literal, select, tuple_
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
from roofwatch.model.history import CommitRef
from roofwatch.model.machine import Outcome
from roofwatch.model.metrics import SHARE_OF_STEP
from roofwatch.model.results import CaseProfile, Counters
from roofwatch.model.series_filter import Word
from roofwatch.model.stored_results import CountedRun, KernelFunction, ProfiledRun, StepShare

Subject = tuple[str, str]
"""Case id and implementation."""


def list_changed_code(session: Session, project: str, row_ids: Collection[int]) -> set[Subject]:
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
    query = (
        select(compiled.name, compiled.implementation)
        .where(is_number_of(compiled.run_number, is_in_series(project, include_pairs=True)))
        .group_by(
            compiled.name,
            compiled.implementation,
            compiled.function,
            compiled.target,
        )
        .having(func.count(func.distinct(func.coalesce(compiled.code_hash, ""))) > 1)
        .distinct()
    )
    return {(name, implementation) for name, implementation in session.execute(query)}


def list_failed_checks(session: Session, project: str, row_ids: Collection[int]) -> set[Subject]:
    """List subjects whose accuracy check failed in any run."""
    query = (
        select(CaseRow.name, AccuracyRow.implementation)
        .select_from(AccuracyRow)
        .join(CaseRow, CaseRow.id == AccuracyRow.case_id)
        .where(
            AccuracyRow.case_id.in_(row_ids),
            AccuracyRow.outcome != Outcome.OK.value,
            is_number_of(AccuracyRow.run_number, is_in_series(project, include_pairs=True)),
        )
        .distinct()
    )
    return {(name, implementation) for name, implementation in session.execute(query)}


def list_imported(session: Session, row_ids: Collection[int]) -> set[Subject]:
    """List subjects with values of other tools."""
    query = (
        select(CaseRow.name, ImportedRow.implementation)
        .join(CaseRow, CaseRow.id == ImportedRow.case_id)
        .where(ImportedRow.case_id.in_(row_ids))
        .distinct()
    )
    return {(name, implementation) for name, implementation in session.execute(query)}


def list_marked_controls(session: Session, row_ids: Collection[int]) -> set[Subject]:
    """List subjects that an import marked as rows of a library."""
    query = (
        select(CaseRow.name, ImportedRow.implementation)
        .join(CaseRow, CaseRow.id == ImportedRow.case_id)
        .where(ImportedRow.case_id.in_(row_ids), ImportedRow.is_control)
        .distinct()
    )
    return {(name, implementation) for name, implementation in session.execute(query)}


def read_counted_runs(
    session: Session, project: str, subjects: Collection[Subject]
) -> list[CountedRun]:
    """Read the hardware counters of some subjects, ordered by commit, then by time."""
    runs: defaultdict[tuple[UUID, CommitRef, str, Subject], list[Counters]] = defaultdict(list)
    for run_id, runner_class, commit, document in _documents(
        session,
        project,
        subjects,
        "counters",
    ):
        counters = Counters.model_validate(document)
        runs[run_id, commit, runner_class, (counters.case_id, counters.implementation)].append(
            counters
        )
    return [
        CountedRun(
            *subject,
            runner_class,
            commit,
            tuple(counters),
        )
        for (_, commit, runner_class, subject), counters in runs.items()
    ]


def read_profiled_runs(
    session: Session, project: str, subjects: Collection[Subject]
) -> list[ProfiledRun]:
    """Read the profiles of some subjects, ordered by commit, then by time."""
    return [
        ProfiledRun(runner_class, commit, CaseProfile.model_validate(document))
        for _, runner_class, commit, document in _documents(session, project, subjects, "profiles")
    ]


def list_step_shares(session: Session, project: ProjectName, runner_class: Word) -> list[StepShare]:
    """List the shares of each step in its newest run on a runner class."""
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
    subjects: Collection[Subject],
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
