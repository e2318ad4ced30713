"""Pairs: base and head measured in one job, their blocks interleaved."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select, true
from sqlalchemy.orm import Session, aliased

from collector.record import Side
from db.storing.samples import unpack
from db.tables.records import CaseRow, CaseVersionRow, CommitRow, ProjectRow, RunRow, SampleSetRow, SeriesRow
from db.values import Pair


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
    base_run, head_run = aliased(RunRow), aliased(RunRow)
    base_commit, head_commit = aliased(CommitRow), aliased(CommitRow)
    base, head = aliased(SampleSetRow), aliased(SampleSetRow)
    base_series, head_series = aliased(SeriesRow), aliased(SeriesRow)
    base_version, head_version = aliased(CaseVersionRow), aliased(CaseVersionRow)
    query = (
        select(
            head_run.pair_id,
            base_commit,
            head_commit,
            CaseRow.name,
            head_series.implementation,
            head_series.runner_class,
            head_run.started_at,
            base.content,
            head.content,
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
            base_run.commit_id == head_run.commit_id if of_one_commit else true(),
            true() if row_ids is None else head_version.case_id.in_(row_ids),
        )
        .order_by(
            head_run.started_at.desc(), head_run.run_id, base_run.run_id, CaseRow.name, head_series.implementation
        )
    )
    pairs = []
    for pair_id, base_of, head_of, case_id, implementation, runner_class, started_at, *contents in session.execute(
        query
    ):
        base_blocks_ns, head_blocks_ns = (unpack(content).blocks_ns() for content in contents)
        if base_blocks_ns and head_blocks_ns:
            pairs.append(
                Pair(
                    project=project,
                    pair_id=str(pair_id),
                    base=base_of.to_ref(),
                    head=head_of.to_ref(),
                    case_id=case_id,
                    implementation=implementation,
                    runner_class=runner_class,
                    measured_at=started_at,
                    base_blocks_ns=base_blocks_ns,
                    head_blocks_ns=head_blocks_ns,
                )
            )
    return pairs
