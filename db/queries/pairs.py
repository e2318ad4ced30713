"""Pairs: base and head measured in one job, their blocks interleaved."""

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, and_, func, select, true
from sqlalchemy.orm import Session, aliased

from roofwatch.db.queries.samples import split_blocks
from roofwatch.db.schema.measurements import SampleSetRow, SeriesRow
from roofwatch.db.schema.run_filter import project_id
from roofwatch.db.schema.runs import CaseRow, CaseVersionRow, CommitRow, EnvironmentRow, RunRow
from roofwatch.model.code_identity import RunCode
from roofwatch.model.history import Pair, timing_of
from roofwatch.model.record import Side

_MAX_CALIBRATIONS = 3
"""Calibrations per runner: several, because one of few kernels must not hide an earlier one of all
kernels.
"""


def list_pairs(
    session: Session,
    project: str,
    *,
    row_ids: Sequence[int] | None = None,
    pair_ids: Select[UUID | None] | None = None,
    of_one_commit: bool = False,
) -> list[Pair]:
    """List comparable measurements of pairs, newest first; only of some cases (by row id) or pairs
    if given.

    Left out are measurements that failed on a side, differ in runner class, harness version, timer
    or cache state, or whose samples are no longer kept. `of_one_commit` lists only A/A
    calibrations.
    """
    base_run = aliased(RunRow)
    head_run = aliased(RunRow)
    base_commit = aliased(CommitRow, name="base_of")
    head_commit = aliased(CommitRow, name="head_of")
    base = aliased(SampleSetRow)
    head = aliased(SampleSetRow)
    base_series = aliased(SeriesRow)
    head_series = aliased(SeriesRow)
    base_version = aliased(CaseVersionRow)
    head_version = aliased(CaseVersionRow)
    query = (
        select(
            base_run.number.label("base_number"),
            head_run.number.label("head_number"),
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
            base.samples_ns.label("base_samples_ns"),
            base.block_lengths.label("base_block_lengths"),
            head.samples_ns.label("head_samples_ns"),
            head.block_lengths.label("head_block_lengths"),
        )
        .select_from(head_run)
        .join(base_run, base_run.pair_id == head_run.pair_id)
        .join(head_commit, head_commit.id == head_run.commit_id)
        .join(base_commit, base_commit.id == base_run.commit_id)
        .join(head, head.run_number == head_run.number)
        .join(head_series, head_series.id == head.series_id)
        .join(head_version, head_version.id == head_series.case_version_id)
        # a change of the counted work gives a case another version on one side
        .join(base_version, base_version.case_id == head_version.case_id)
        .join(
            base_series,
            (base_series.case_version_id == base_version.id)
            & (base_series.implementation == head_series.implementation)
            & (base_series.timer == head_series.timer)
            & (base_series.cache == head_series.cache)
            & (base_series.runner_class == head_series.runner_class),
        )
        .join(base, (base.run_number == base_run.number) & (base.series_id == base_series.id))
        .join(CaseRow, CaseRow.id == head_version.case_id)
        .where(
            head_commit.project_id == project_id(project),
            base_commit.project_id == head_commit.project_id,
            _is_pair(base_run, head_run),
            _is_same_code(base_run, head_run) if of_one_commit else true(),
            true() if row_ids is None else head_version.case_id.in_(row_ids),
            true() if pair_ids is None else head_run.pair_id.in_(pair_ids),
        )
        .order_by(
            head_run.started_at.desc(),
            head_run.run_id,
            base_run.run_id,
            CaseRow.name,
            head_series.implementation,
        )
    )
    rows = session.execute(query).all()
    numbers = {number for row in rows for number in (row.base_number, row.head_number)}
    codes = _codes_of_runs(session, numbers)
    pairs: list[Pair] = []
    for row in rows:
        base_blocks_ns = split_blocks(row.base_samples_ns, row.base_block_lengths)
        head_blocks_ns = split_blocks(row.head_samples_ns, row.head_block_lengths)
        # retention removes samples, and without them nothing can be compared
        if not base_blocks_ns or not head_blocks_ns:
            continue
        pair = Pair(
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
            is_same_code=codes[row.base_number].is_same(
                codes[row.head_number],
                (row.name, row.implementation),
            ),
        )
        pairs.append(pair)
    return pairs


def _codes_of_runs(session: Session, numbers: Collection[int]) -> dict[int, RunCode]:
    """What runs measured, by their number."""
    query = select(
        RunRow.number,
        RunRow.environment_id,
        RunRow.document["implementation_digests"].label("implementation_digests"),
        RunRow.document["requirements"].label("requirements"),
    ).where(RunRow.number.in_(numbers))
    codes: dict[int, RunCode] = {}
    for row in session.execute(query):
        # a document has no defaults
        codes[row.number] = RunCode(
            implementation_digests=row.implementation_digests or {},
            requirements=row.requirements or {},
            environment=row.environment_id,
        )
    return codes


def list_newest_calibrations(session: Session, project: str, run_id: UUID) -> list[Pair]:
    """List the measurements of the three newest other calibrations with a run's runner class,
    harness and preset.
    """
    run = aliased(RunRow)
    base = aliased(RunRow)
    head = aliased(RunRow)
    run_environment = aliased(EnvironmentRow)
    environment = aliased(EnvironmentRow)
    newest = (
        select(head.pair_id)
        .select_from(run)
        .join(run_environment, run_environment.id == run.environment_id)
        .join(environment, environment.runner_class == run_environment.runner_class)
        .join(head, head.environment_id == environment.id)
        .join(base, base.pair_id == head.pair_id)
        .where(
            run.run_id == run_id,
            head.project_id == project_id(project),
            head.harness_version == run.harness_version,
            func.coalesce(head.preset == run.preset, true()),
            _is_pair(base, head),
            _is_same_code(base, head),
            # also true if the run is no pair, where `!=` would be unknown
            head.pair_id.is_distinct_from(run.pair_id),
        )
        .order_by(head.started_at.desc(), head.run_id)
        .limit(_MAX_CALIBRATIONS)
    )
    return list_pairs(session, project, pair_ids=newest, of_one_commit=True)


def _is_pair(base: Any, head: Any) -> ColumnElement[bool]:
    # times of two versions of the harness may differ although the code is the same
    return and_(
        head.pair_side == Side.HEAD.value,
        base.pair_side == Side.BASE.value,
        base.harness_version == head.harness_version,
    )


def _is_same_code(base: Any, head: Any) -> ColumnElement[bool]:
    # a modified work tree has the commit that it was made from
    return and_(base.commit_id == head.commit_id, base.is_dirty == head.is_dirty)
