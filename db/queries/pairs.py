"""Pairs: base and head measured in one job, their blocks interleaved."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import ColumnElement, Select, and_, func, select, true
from sqlalchemy.orm import Session, aliased

from roofwatch.collector.record.record import Side
from roofwatch.db.ingest.samples import unpack
from roofwatch.db.schema.measurements import SampleSetRow, SeriesRow
from roofwatch.db.schema.runs import CaseRow, CaseVersionRow, CommitRow, EnvironmentRow, ProjectRow, RunRow
from roofwatch.db.values import Pair, timing_of

_MOST_CALIBRATIONS = 3
"""Of a runner that are read: one of a few kernels does not hide the one of all of them before it."""


def list_pairs(
    session: Session, project: str, *, row_ids: Sequence[int] | None = None, of_one_commit: bool = False
) -> list[Pair]:
    """The pairs of a project, newest first; only what both sides measured, alike enough to compare.

    Left out is what failed on a side, or was measured there on another runner class, by another harness version or
    timer, or in another cache state; and pairs whose samples are no longer kept.

    Args:
        session: Of the store.
        project: Its name.
        row_ids: Only of the cases in these rows.
        of_one_commit: Only those that measured a commit against itself: what calibrates a runner.
    """
    return _read(session, project, row_ids=row_ids, of_one_commit=of_one_commit)


def list_newest_calibrations(session: Session, project: str, run_id: UUID) -> list[Pair]:
    """What the newest three calibrations measured on the runner class of a run and by its harness, newest first: as
    `list_pairs`, in one statement. What the run itself is a side of calibrates it not, nor what is known to be sampled
    by another preset.

    Args:
        session: Of the store.
        project: Whose calibrations count.
        run_id: Of the run.
    """
    run, base_run, head_run = aliased(RunRow), aliased(RunRow), aliased(RunRow)
    own, environment = aliased(EnvironmentRow), aliased(EnvironmentRow)
    newest = (
        select(head_run.pair_id)
        .select_from(run)
        .join(own, own.id == run.environment_id)
        .join(environment, environment.runner_class == own.runner_class)
        .join(head_run, head_run.environment_id == environment.id)
        .join(base_run, base_run.pair_id == head_run.pair_id)
        .join(ProjectRow, ProjectRow.id == head_run.project_id)
        .where(
            run.run_id == run_id,
            ProjectRow.name == project,
            head_run.harness_version == run.harness_version,
            func.coalesce(head_run.preset == run.preset, true()),
            head_run.pair_side == Side.HEAD.value,
            base_run.pair_side == Side.BASE.value,
            _is_same_code(base_run, head_run),
            head_run.pair_id.is_distinct_from(run.pair_id),
        )
        .order_by(head_run.started_at.desc(), head_run.run_id)
        .limit(_MOST_CALIBRATIONS)
    )
    return _read(session, project, of_one_commit=True, pair_ids=newest)


def _is_same_code(base_run: type[RunRow], head_run: type[RunRow]) -> ColumnElement[bool]:
    """Of one commit, and not of its work tree on one side alone, which may differ from it."""
    return and_(base_run.commit_id == head_run.commit_id, base_run.is_dirty == head_run.is_dirty)


def _read(
    session: Session,
    project: str,
    *,
    row_ids: Sequence[int] | None = None,
    of_one_commit: bool = False,
    pair_ids: Select[UUID | None] | None = None,
) -> list[Pair]:
    base_run, head_run = aliased(RunRow), aliased(RunRow)
    base_commit, head_commit = aliased(CommitRow, name="base_of"), aliased(CommitRow, name="head_of")
    base, head = aliased(SampleSetRow), aliased(SampleSetRow)
    base_series, head_series = aliased(SeriesRow), aliased(SeriesRow)
    base_version, head_version = aliased(CaseVersionRow), aliased(CaseVersionRow)
    query = (
        select(
            head_run.pair_id,
            head_run.started_at,
            head_run.harness_version,
            head_run.preset,
            base_commit,
            head_commit,
            CaseRow.name,
            head_series.implementation,
            head_series.runner_class,
            head_series.timer,
            head_series.cache,
            base.content.label("base_content"),
            head.content.label("head_content"),
        )
        .select_from(head_run)
        .join(base_run, base_run.pair_id == head_run.pair_id)
        .join(head_commit, head_commit.id == head_run.commit_id)
        .join(base_commit, base_commit.id == base_run.commit_id)
        .join(ProjectRow, ProjectRow.id == head_commit.project_id)
        .join(head, (head.measured_on == head_run.measured_on) & (head.run_number == head_run.number))
        .join(head_series, head_series.id == head.series_id)
        .join(head_version, head_version.id == head_series.case_version_id)
        .join(base_version, base_version.case_id == head_version.case_id)
        .join(
            base_series,
            (base_series.case_version_id == base_version.id)
            & (base_series.implementation == head_series.implementation)
            & (base_series.timer == head_series.timer)
            & (base_series.cache == head_series.cache)
            & (base_series.runner_class == head_series.runner_class),
        )
        .join(
            base,
            (base.measured_on == base_run.measured_on)
            & (base.run_number == base_run.number)
            & (base.series_id == base_series.id),
        )
        .join(CaseRow, CaseRow.id == head_version.case_id)
        .where(
            ProjectRow.name == project,
            base_commit.project_id == head_commit.project_id,
            head_run.pair_side == Side.HEAD.value,
            base_run.pair_side == Side.BASE.value,
            base_run.harness_version == head_run.harness_version,
            _is_same_code(base_run, head_run) if of_one_commit else true(),
            true() if pair_ids is None else head_run.pair_id.in_(pair_ids),
            true() if row_ids is None else head_version.case_id.in_(row_ids),
        )
        .order_by(
            head_run.started_at.desc(), head_run.run_id, base_run.run_id, CaseRow.name, head_series.implementation
        )
    )
    pairs = []
    for row in session.execute(query):
        base_blocks_ns, head_blocks_ns = (
            unpack(content).blocks_ns() for content in (row.base_content, row.head_content)
        )
        if base_blocks_ns and head_blocks_ns:
            pairs.append(
                Pair(
                    project=project,
                    pair_id=str(row.pair_id),
                    base=row.base_of.to_ref(),
                    head=row.head_of.to_ref(),
                    case_id=row.name,
                    implementation=row.implementation,
                    runner_class=row.runner_class,
                    measured_at=row.started_at,
                    base_blocks_ns=base_blocks_ns,
                    head_blocks_ns=head_blocks_ns,
                    timing=timing_of(row.timer, row.cache),
                    harness_version=row.harness_version,
                    preset=row.preset,
                )
            )
    return pairs
