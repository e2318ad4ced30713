"""The tables. Columns bear the names of the record's fields; what a record lists in order has a `position`.

What many runs share has a row of its own (project, environment, commit, case); everything else hangs on its run
and goes with it. Constraints are named, so that a migration can speak of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    CheckConstraint,
    DateTime,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    MetaData,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from collector.measurement import CacheState, Timer
from collector.part import Outcome
from collector.record import Side
from db.values import Cause, CommitRef, RegressionState, Verdict

_NAMES = {
    "pk": "pk_%(table_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
}


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=_NAMES)
    type_annotation_map = {  # noqa: RUF012 -- SQLAlchemy's own hook, read once
        str: Text(),
        float: Double(),
        datetime: DateTime(timezone=True),
        list[str]: ARRAY(Text()),
        list[int]: ARRAY(Integer()),
        list[float]: ARRAY(Double()),
        list[datetime]: ARRAY(DateTime(timezone=True)),
        # json, not jsonb: it keeps the order of a shape's dimensions, and 1e20 stays a float
        dict[str, Any]: JSON(),
    }


def _one_of(column: str, values: Iterable[str], *, optional: bool = False) -> CheckConstraint:
    allowed = ", ".join(f"'{value}'" for value in values)
    null = f"{column} IS NULL OR " if optional else ""
    return CheckConstraint(f"{null}{column} IN ({allowed})", name=column)


def _not_negative(*columns: str) -> list[CheckConstraint]:
    return [CheckConstraint(f"{column} >= 0", name=f"{column}_not_negative") for column in columns]


class ProjectRow(Base):
    __tablename__ = "project"
    __table_args__ = (UniqueConstraint("name"),)

    id: Mapped[int] = mapped_column(Integer, Identity(), primary_key=True)
    name: Mapped[str]


class EnvironmentRow(Base):
    """Equal environments share a row: `fingerprint` is the sha256 of all other columns."""

    __tablename__ = "environment"
    __table_args__ = (
        UniqueConstraint("fingerprint"),
        _one_of("device_kind", ("cpu", "cuda", "hip")),
        _one_of("clock_mode", ("free", "locked")),
        *_not_negative("device_memory_bytes", "device_count", "core_count", "thread_count"),
    )

    id: Mapped[int] = mapped_column(Integer, Identity(), primary_key=True)
    fingerprint: Mapped[str]
    runner_class: Mapped[str]
    device_kind: Mapped[str]
    device_name: Mapped[str]
    device_memory_bytes: Mapped[int] = mapped_column(BigInteger)
    device_count: Mapped[int] = mapped_column(BigInteger)
    power_limit_w: Mapped[float | None]
    driver_version: Mapped[str | None]
    compute_capability: Mapped[str | None]
    cpu_name: Mapped[str]
    core_count: Mapped[int] = mapped_column(BigInteger)
    thread_count: Mapped[int] = mapped_column(BigInteger)
    os: Mapped[str]
    python_version: Mapped[str]
    torch_version: Mapped[str]
    triton_version: Mapped[str | None]
    cuda_version: Mapped[str | None]
    compile_knobs: Mapped[dict[str, Any]]
    clock_mode: Mapped[str]
    locked_sm_clock_mhz: Mapped[float | None]
    is_persistence_on: Mapped[bool | None]
    is_ecc_on: Mapped[bool | None]
    is_mig_on: Mapped[bool | None]


class CommitRow(Base):
    """What git says of a commit. Where records of one commit disagree, the first is kept; only the place on the
    branch takes the largest count, since a shallow clone counts too few.
    """

    __tablename__ = "commit"
    __table_args__ = (
        UniqueConstraint("project_id", "sha"),
        *_not_negative("first_parent_count"),
    )

    id: Mapped[int] = mapped_column(Integer, Identity(), primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey(ProjectRow.id, ondelete="CASCADE"))
    sha: Mapped[str]
    parents: Mapped[list[str]]
    first_parent_count: Mapped[int] = mapped_column(BigInteger)
    committed_at: Mapped[datetime]
    author: Mapped[str]
    subject: Mapped[str]

    def to_ref(self) -> CommitRef:
        return CommitRef(
            first_parent_count=self.first_parent_count,
            sha=self.sha,
            author=self.author,
            subject=self.subject,
            committed_at=self.committed_at,
        )


class CaseRow(Base):
    """`name` is the record's case_id. What a case costs belongs to the run: a spec may count differently later."""

    __tablename__ = "case"
    __table_args__ = (
        UniqueConstraint("project_id", "name"),
        Index(None, "project_id", "kernel"),
        _one_of("direction", ("fwd", "bwd")),
    )

    id: Mapped[int] = mapped_column(Integer, Identity(), primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey(ProjectRow.id, ondelete="CASCADE"))
    name: Mapped[str]
    kernel: Mapped[str]
    shape: Mapped[dict[str, Any]]
    dtype: Mapped[str]
    direction: Mapped[str]


class RunRow(Base):
    """`content_hash` tells whether a run that comes again is the same; `unread_fields` keeps what has no column,
    by path in the record: what a newer harness wrote and this version does not know, and what no query asks for.
    """

    __tablename__ = "run"
    __table_args__ = (
        Index(None, "commit_id"),
        Index(None, "environment_id"),
        Index(None, "started_at"),
        Index(None, "pair_id", postgresql_where=text("pair_id IS NOT NULL")),
        _one_of("pair_side", Side, optional=True),
        CheckConstraint("(pair_id IS NULL) = (pair_side IS NULL)", name="pair_has_side"),
    )

    run_id: Mapped[UUID] = mapped_column(primary_key=True)
    commit_id: Mapped[int] = mapped_column(ForeignKey(CommitRow.id, ondelete="CASCADE"))
    environment_id: Mapped[int] = mapped_column(ForeignKey(EnvironmentRow.id))
    content_hash: Mapped[str]
    schema_version: Mapped[str]
    harness_version: Mapped[str]
    branch: Mapped[str | None]
    is_dirty: Mapped[bool]
    pair_id: Mapped[UUID | None]
    pair_side: Mapped[str | None]
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime]
    ingested_at: Mapped[datetime] = mapped_column(server_default=func.now())
    unread_fields: Mapped[dict[str, Any]]
    telemetry: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    spent_ns: Mapped[dict[str, Any]]


class CeilingRow(Base):
    __tablename__ = "ceiling"
    __table_args__ = (
        _one_of("resource", ("memory", "compute")),
        _one_of("level", ("dram", "cache"), optional=True),
        _one_of("source", ("measured", "datasheet")),
        CheckConstraint("per_s > 0", name="per_s_positive"),
        *_not_negative("up_to_bytes"),
    )

    run_id: Mapped[UUID] = mapped_column(ForeignKey(RunRow.run_id, ondelete="CASCADE"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    resource: Mapped[str]
    level: Mapped[str | None]
    dtype: Mapped[str | None]
    per_s: Mapped[float]
    up_to_bytes: Mapped[int | None] = mapped_column(BigInteger)
    method: Mapped[str]
    source: Mapped[str]


class RunCaseRow(Base):
    """A case as one run knew it."""

    __tablename__ = "run_case"
    __table_args__ = (
        Index(None, "case_id"),
        *_not_negative("flop_count", "memory_bytes", "bus_bytes"),
    )

    run_id: Mapped[UUID] = mapped_column(ForeignKey(RunRow.run_id, ondelete="CASCADE"), primary_key=True)
    case_id: Mapped[int] = mapped_column(ForeignKey(CaseRow.id, ondelete="CASCADE"), primary_key=True)
    position: Mapped[int]
    family: Mapped[str]
    flop_count: Mapped[float]
    memory_bytes: Mapped[float]
    bus_bytes: Mapped[float | None]
    tags: Mapped[list[str]]


def _of_run_case() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(["run_id", "case_id"], [RunCaseRow.run_id, RunCaseRow.case_id], ondelete="CASCADE")


class MeasurementRow(Base):
    """`samples_ns` are all blocks' samples, one block after the other, and `block_facts` what else each block says;
    what a metric is named after holds its value, and all are NULL where the outcome is not `ok`.
    """

    __tablename__ = "measurement"
    __table_args__ = (
        _of_run_case(),
        Index(None, "case_id"),
        _one_of("outcome", Outcome),
        _one_of("timer", Timer),
        _one_of("cache", CacheState),
        _one_of("bound", ("memory", "compute"), optional=True),
        CheckConstraint("(outcome = 'ok') = (samples_ns IS NOT NULL)", name="samples_only_if_ok"),
        CheckConstraint(
            "num_nulls(samples_ns, block_lengths, block_started_at, median_ns, q1_ns, q3_ns) IN (0, 6)",
            name="samples_whole",
        ),
        CheckConstraint("cardinality(samples_ns) > 0", name="samples_not_empty"),
        CheckConstraint("cardinality(block_lengths) = cardinality(block_started_at)", name="blocks_whole"),
        CheckConstraint("q1_ns > 0 AND median_ns > 0 AND q3_ns > 0", name="times_positive"),
        CheckConstraint(
            "outcome = 'ok' OR num_nonnulls"
            "(flop_per_s, memory_bytes_per_s, bus_bytes_per_s, utilisation, joules_per_launch) = 0",
            name="values_only_if_ok",
        ),
        CheckConstraint("launches_per_sample > 0", name="launches_per_sample_positive"),
    )

    run_id: Mapped[UUID] = mapped_column(primary_key=True)
    case_id: Mapped[int] = mapped_column(primary_key=True)
    implementation: Mapped[str] = mapped_column(primary_key=True)
    position: Mapped[int]
    outcome: Mapped[str]
    message: Mapped[str | None]
    timer: Mapped[str]
    cache: Mapped[str]
    launches_per_sample: Mapped[int] = mapped_column(BigInteger)
    samples_ns: Mapped[list[float] | None]
    block_lengths: Mapped[list[int] | None]
    block_started_at: Mapped[list[datetime] | None]
    median_ns: Mapped[float | None]
    q1_ns: Mapped[float | None]
    q3_ns: Mapped[float | None]
    flop_per_s: Mapped[float | None]
    memory_bytes_per_s: Mapped[float | None]
    bus_bytes_per_s: Mapped[float | None]
    utilisation: Mapped[float | None]
    joules_per_launch: Mapped[float | None]
    bound: Mapped[str | None]
    block_facts: Mapped[list[dict[str, Any]] | None] = mapped_column(JSON(none_as_null=True))
    memory: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    autotuning: Mapped[list[dict[str, Any]]] = mapped_column(JSON())


class AccuracyRow(Base):
    __tablename__ = "accuracy"
    __table_args__ = (
        _of_run_case(),
        Index(None, "case_id"),
        _one_of("executor", ("device", "interpreter")),
        _one_of("outcome", Outcome),
    )

    run_id: Mapped[UUID] = mapped_column(primary_key=True)
    case_id: Mapped[int] = mapped_column(primary_key=True)
    implementation: Mapped[str] = mapped_column(primary_key=True)
    position: Mapped[int]
    executor: Mapped[str]
    outcome: Mapped[str]
    message: Mapped[str | None]


class TensorErrorRow(Base):
    __tablename__ = "tensor_error"
    __table_args__ = (
        ForeignKeyConstraint(
            ["run_id", "case_id", "implementation"],
            [AccuracyRow.run_id, AccuracyRow.case_id, AccuracyRow.implementation],
            ondelete="CASCADE",
        ),
        *_not_negative("max_abs_error", "rmse_ratio", "baseline_rmse_ratio"),
    )

    run_id: Mapped[UUID] = mapped_column(primary_key=True)
    case_id: Mapped[int] = mapped_column(primary_key=True)
    implementation: Mapped[str] = mapped_column(primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    tensor: Mapped[str]
    max_abs_error: Mapped[float]
    rmse_ratio: Mapped[float]
    baseline_rmse_ratio: Mapped[float | None]
    passed: Mapped[bool]


class StaticFactRow(Base):
    __tablename__ = "static_fact"
    __table_args__ = (
        _of_run_case(),
        Index(None, "case_id"),
        _one_of("outcome", Outcome),
        CheckConstraint("(outcome = 'ok') = (code_hash IS NOT NULL)", name="code_only_if_ok"),
        *_not_negative(
            "thread_count",
            "registers",
            "accumulation_registers",
            "scalar_registers",
            "spilled_registers",
            "spill_store_count",
            "spill_load_count",
            "local_bytes",
            "shared_bytes",
            "static_shared_bytes",
            "tensor_memory_columns",
            "theoretical_occupancy",
            "instruction_count",
            "code_bytes",
        ),
    )

    run_id: Mapped[UUID] = mapped_column(primary_key=True)
    case_id: Mapped[int] = mapped_column(primary_key=True)
    implementation: Mapped[str] = mapped_column(primary_key=True)
    function: Mapped[str] = mapped_column(primary_key=True)
    target: Mapped[str] = mapped_column(primary_key=True)
    position: Mapped[int]
    outcome: Mapped[str]
    message: Mapped[str | None]
    configuration: Mapped[dict[str, Any]]
    toolchain: Mapped[dict[str, Any]]
    thread_count: Mapped[int | None] = mapped_column(BigInteger)
    registers: Mapped[int | None] = mapped_column(BigInteger)
    accumulation_registers: Mapped[int | None] = mapped_column(BigInteger)
    scalar_registers: Mapped[int | None] = mapped_column(BigInteger)
    spilled_registers: Mapped[int | None] = mapped_column(BigInteger)
    spill_store_count: Mapped[int | None] = mapped_column(BigInteger)
    spill_load_count: Mapped[int | None] = mapped_column(BigInteger)
    local_bytes: Mapped[int | None] = mapped_column(BigInteger)
    shared_bytes: Mapped[int | None] = mapped_column(BigInteger)
    static_shared_bytes: Mapped[int | None] = mapped_column(BigInteger)
    tensor_memory_columns: Mapped[int | None] = mapped_column(BigInteger)
    theoretical_occupancy: Mapped[float | None]
    occupancy_limits: Mapped[list[str]]
    instruction_count: Mapped[int | None] = mapped_column(BigInteger)
    instructions: Mapped[dict[str, Any]]
    compile_ns: Mapped[dict[str, Any]]
    code_bytes: Mapped[int | None] = mapped_column(BigInteger)
    code_hash: Mapped[str | None]


class CountersRow(Base):
    __tablename__ = "counters"
    __table_args__ = (
        _of_run_case(),
        Index(None, "case_id"),
        _one_of("source", ("ncu",)),
        *_not_negative("launch_index"),
    )

    run_id: Mapped[UUID] = mapped_column(primary_key=True)
    case_id: Mapped[int] = mapped_column(primary_key=True)
    implementation: Mapped[str] = mapped_column(primary_key=True)
    function: Mapped[str] = mapped_column(primary_key=True)
    launch_index: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    position: Mapped[int]
    source: Mapped[str]
    values: Mapped[dict[str, Any]]
    findings: Mapped[list[dict[str, Any]]] = mapped_column(JSON())


class RegressionRow(Base):
    """Judged from the runs and replaced whole whenever a project is judged again."""

    __tablename__ = "regression"
    __table_args__ = (
        UniqueConstraint("commit_id", "kernel", "verdict"),
        _one_of("verdict", Verdict),
        _one_of("cause", Cause),
        _one_of("state", RegressionState),
    )

    id: Mapped[int] = mapped_column(Integer, Identity(), primary_key=True)
    commit_id: Mapped[int] = mapped_column(ForeignKey(CommitRow.id, ondelete="CASCADE"))
    kernel: Mapped[str]
    verdict: Mapped[str]
    cause: Mapped[str]
    summary: Mapped[str]
    state: Mapped[str]
    is_confirmed: Mapped[bool]
    suspects: Mapped[list[dict[str, Any]]] = mapped_column(JSON())
    family: Mapped[str]
    typical_change: Mapped[float | None]
    change_spread: Mapped[float | None]
    is_alert: Mapped[bool]
    recovered_commit_id: Mapped[int | None] = mapped_column(ForeignKey(CommitRow.id, ondelete="CASCADE"))


class ChangePointRow(Base):
    __tablename__ = "change_point"
    __table_args__ = (
        Index(None, "commit_id"),
        Index(None, "previous_commit_id"),
        Index(None, "case_id"),
        _one_of("verdict", Verdict),
    )

    regression_id: Mapped[int] = mapped_column(ForeignKey(RegressionRow.id, ondelete="CASCADE"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    commit_id: Mapped[int] = mapped_column(ForeignKey(CommitRow.id, ondelete="CASCADE"))
    previous_commit_id: Mapped[int] = mapped_column(ForeignKey(CommitRow.id, ondelete="CASCADE"))
    case_id: Mapped[int] = mapped_column(ForeignKey(CaseRow.id, ondelete="CASCADE"))
    implementation: Mapped[str]
    metric: Mapped[str]
    runner_class: Mapped[str]
    function: Mapped[str]
    target: Mapped[str]
    tensor: Mapped[str]
    verdict: Mapped[str]
    before: Mapped[float | None]
    after: Mapped[float | None]
    evidence: Mapped[str]
    is_gradual: Mapped[bool]
