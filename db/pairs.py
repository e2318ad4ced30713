"""Pairs: base and head measured in one job, their blocks interleaved."""

from __future__ import annotations

from itertools import accumulate, pairwise

from sqlalchemy import select, true
from sqlalchemy.orm import Session, aliased

from collector.part import Outcome
from collector.record import Side
from db.models import CaseRow, CommitRow, EnvironmentRow, MeasurementRow, ProjectRow, RunRow
from db.values import Pair


def list_pairs(session: Session, project: str, *, of_one_commit: bool = False) -> list[Pair]:
    """The pairs of a project, newest first; only what both sides measured, alike enough to compare.

    Left out is what failed on a side, or was measured there on another runner class, by another harness version or
    timer, or in another cache state.

    Args:
        session: Of the store.
        project: Its name.
        of_one_commit: Only those that measured a commit against itself: what calibrates a runner.
    """
    base_run, head_run = aliased(RunRow), aliased(RunRow)
    base_environment, head_environment = aliased(EnvironmentRow), aliased(EnvironmentRow)
    base_commit, head_commit = aliased(CommitRow), aliased(CommitRow)
    base, head = aliased(MeasurementRow), aliased(MeasurementRow)
    query = (
        select(head_run.pair_id, base_commit, head_commit, CaseRow.name, head_environment.runner_class, base, head)
        .select_from(head_run)
        .join(base_run, base_run.pair_id == head_run.pair_id)
        .join(head_environment, head_environment.id == head_run.environment_id)
        .join(base_environment, base_environment.id == base_run.environment_id)
        .join(head_commit, head_commit.id == head_run.commit_id)
        .join(base_commit, base_commit.id == base_run.commit_id)
        .join(ProjectRow, ProjectRow.id == head_commit.project_id)
        .join(head, head.run_id == head_run.run_id)
        .join(
            base,
            (base.run_id == base_run.run_id)
            & (base.case_id == head.case_id)
            & (base.implementation == head.implementation),
        )
        .join(CaseRow, CaseRow.id == head.case_id)
        .where(
            ProjectRow.name == project,
            base_commit.project_id == head_commit.project_id,
            head_run.pair_side == Side.HEAD.value,
            base_run.pair_side == Side.BASE.value,
            base_environment.runner_class == head_environment.runner_class,
            base_run.harness_version == head_run.harness_version,
            base.outcome == Outcome.OK.value,
            head.outcome == Outcome.OK.value,
            base.timer == head.timer,
            base.cache == head.cache,
            base_run.commit_id == head_run.commit_id if of_one_commit else true(),
        )
        .order_by(head_run.started_at.desc(), head_run.run_id, base_run.run_id, CaseRow.name, head.implementation)
    )
    return [
        Pair(
            project=project,
            pair_id=str(pair_id),
            base=base_commit_row.to_ref(),
            head=head_commit_row.to_ref(),
            case_id=case_id,
            implementation=head_row.implementation,
            runner_class=runner_class,
            base_blocks_ns=_blocks_ns(base_row),
            head_blocks_ns=_blocks_ns(head_row),
        )
        for pair_id, base_commit_row, head_commit_row, case_id, runner_class, base_row, head_row in session.execute(
            query
        )
    ]


def _blocks_ns(row: MeasurementRow) -> tuple[tuple[float, ...], ...]:
    assert row.samples_ns is not None
    assert row.block_lengths is not None
    bounds = pairwise(accumulate(row.block_lengths, initial=0))
    return tuple(tuple(row.samples_ns[begin:end]) for begin, end in bounds)
