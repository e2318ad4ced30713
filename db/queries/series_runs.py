"""The runs that series are made of: which belong to a branch, and what each was measured with."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from sqlalchemy import JSON, ColumnElement, Integer, ScalarSelect, Text, and_, any_, cast, func, or_, select
from sqlalchemy.orm import Session, aliased

from roofwatch.collector.record.machine import Outcome
from roofwatch.db.ingest.shared_rows import as_json
from roofwatch.db.schema.runs import CommitRow, EnvironmentRow, ProjectRow, RunRow
from roofwatch.db.values import CommitRef, RunSetting, SeriesPoint

_DEFAULT_BRANCHES = ("main", "master", "trunk")
"""Names that say by themselves that a branch is a project's own; else it is the one with the most runs."""
_VERSIONS = ("torch_version", "triton_version", "cuda_version", "python_version")
_MACHINE = (
    *("os", "cpu_name", "core_count", "thread_count", "device_count"),
    *("clock_mode", "locked_sm_clock_mhz", "is_persistence_on", "is_ecc_on", "is_mig_on"),
)


@dataclass(frozen=True)
class SeriesRun:
    """What all points of one run have in common."""

    run_id: str
    commit: CommitRef
    measured_at: datetime
    runner_class: str
    setting: RunSetting

    def point(self, outcome: str, message: str | None, value: float | None, **more: Any) -> SeriesPoint:
        return SeriesPoint(
            commit=self.commit,
            run_id=self.run_id,
            measured_at=self.measured_at,
            outcome=Outcome(outcome),
            value=None if value is None else float(value),
            message=message,
            setting=self.setting,
            **more,
        )


def read_runs(session: Session, condition: ColumnElement[bool]) -> dict[int, SeriesRun]:
    """The runs that a condition on runs and projects leaves, by number."""
    query = (
        select(
            RunRow.number,
            RunRow.run_id,
            RunRow.started_at,
            RunRow.harness_version,
            RunRow.environment_id,
            RunRow.commit_id,
        )
        .join(ProjectRow, ProjectRow.id == RunRow.project_id)
        .where(condition)
    )
    rows = session.execute(query).all()
    used = select(EnvironmentRow).where(EnvironmentRow.id.in_({row.environment_id for row in rows}))
    environments = {environment.id: environment for environment in session.scalars(used)}
    commits = _read_commits(session, {row.commit_id for row in rows})
    settings: dict[tuple[int, str], RunSetting] = {}
    runs = {}
    for number, run_id, started_at, harness_version, environment_id, commit_id in rows:
        environment = environments[environment_id]
        key = environment_id, harness_version
        if key not in settings:
            settings[key] = setting_of(environment, harness_version)
        runs[number] = SeriesRun(str(run_id), commits[commit_id], started_at, environment.runner_class, settings[key])
    return runs


def _read_commits(session: Session, ids: Collection[int]) -> dict[int, CommitRef]:
    """By id. All at once, in the order of the index: joined with its run, each would be looked for by itself."""
    # as a document, which is quicker for both sides than a list, and no reason to plan anew
    listed = func.json_array_elements_text(cast(cast(as_json(sorted(ids)), Text), JSON)).column_valued()
    wanted = any_(func.array(select(cast(listed, Integer)).scalar_subquery()))
    columns = [getattr(CommitRow, field.name) for field in fields(CommitRef)]
    query = select(CommitRow.id, *columns).where(CommitRow.id == wanted)
    return {commit_id: CommitRef(*values) for commit_id, *values in session.execute(query)}


def of_series(project: str, *, include_dirty: bool, include_pairs: bool, include_branches: bool) -> ColumnElement[bool]:
    """Condition on runs that are joined with their commit and project.

    A run whose branch is not known, as on a detached HEAD, is taken to be of the default branch: so are those of most
    CI jobs. With the runs of other branches come those of commits that a branch has left.
    """
    conditions = [ProjectRow.name == project]
    if not include_dirty:
        conditions.append(RunRow.is_dirty.is_(False))
    if not include_pairs:
        conditions.append(RunRow.pair_id.is_(None))
    if not include_branches:
        conditions.append(or_(RunRow.branch.is_(None), RunRow.branch == default_branch(project)))
        conditions.append(on_branch())
    return and_(*conditions)


def on_branch(run: Any = RunRow) -> ColumnElement[bool]:
    """Condition on runs, by whatever name: not those of a commit that the branch which they were made on has left."""
    condition: ColumnElement[bool] = run.is_unreachable.is_(False)
    return condition


def default_branch(project: str) -> ScalarSelect[str | None]:
    """Name of the branch that is the project's own; NULL where no run of it says its branch."""
    run, own = aliased(RunRow), aliased(ProjectRow)
    return (
        select(run.branch)
        .join(own, own.id == run.project_id)
        .where(own.name == project, run.branch.is_not(None))
        .group_by(run.branch)
        .order_by(run.branch.in_(_DEFAULT_BRANCHES).desc(), func.count().desc(), run.branch)
        .limit(1)
        .scalar_subquery()
    )


def setting_of(environment: EnvironmentRow, harness_version: str) -> RunSetting:
    versions = {name.removesuffix("_version"): getattr(environment, name) for name in _VERSIONS}
    toolchain = {name: str(version) for name, version in versions.items() if version is not None}
    toolchain |= {name: str(value) for name, value in environment.compile_knobs.items()}
    machine = {name: getattr(environment, name) for name in _MACHINE}
    return RunSetting(
        harness_version=harness_version,
        driver_version=environment.driver_version,
        compute_capability=environment.compute_capability,
        toolchain=tuple(sorted(toolchain.items())),
        machine=tuple((name.replace("_", " "), str(value)) for name, value in machine.items() if value is not None),
    )
