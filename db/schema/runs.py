"""The tables of runs, of what runs share (project, environment, commit, case),
and of their files.
"""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    JSON,
    CheckConstraint,
    ForeignKey,
    Identity,
    Index,
    LargeBinary,
    UniqueConstraint,
    false,
    func,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from roofwatch.db.schema.table import Base, RowId, not_negative, one_of, to_value
from roofwatch.model.history import CommitRef
from roofwatch.model.machine import Environment
from roofwatch.model.record import Side


class ProjectRow(Base):
    """A project waits for an analysis if one was requested after the last began."""

    __tablename__ = "project"
    __table_args__ = (UniqueConstraint("name"),)

    id: Mapped[RowId] = mapped_column(Identity(), primary_key=True)
    name: Mapped[str]
    analysis_requested_at: Mapped[datetime | None]
    analysed_at: Mapped[datetime | None]


class EnvironmentRow(Base):
    """Equal environments share a row; `fingerprint` is the sha256 of the other columns."""

    __tablename__ = "environment"
    __table_args__ = (
        UniqueConstraint("fingerprint"),
        one_of("device_kind", ("cpu", "cuda", "hip", "unknown")),
        one_of("clock_mode", ("free", "locked")),
        *not_negative("device_memory_bytes", "device_count", "core_count", "thread_count"),
    )

    id: Mapped[RowId] = mapped_column(Identity(), primary_key=True)
    fingerprint: Mapped[str]
    runner_class: Mapped[str]
    device_kind: Mapped[str]
    device_name: Mapped[str]
    # unknown if another tool measured, as are the counts below
    device_memory_bytes: Mapped[int | None]
    device_count: Mapped[int]
    power_limit_w: Mapped[float | None]
    driver_version: Mapped[str | None]
    compute_capability: Mapped[str | None]
    cpu_name: Mapped[str]
    core_count: Mapped[int | None]
    thread_count: Mapped[int | None]
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
    imported_from: Mapped[str | None]

    def to_environment(self) -> Environment:
        return Environment.model_validate(
            {name: getattr(self, name) for name in Environment.model_fields}
        )


class CommitRow(Base):
    """A commit as its first record has it, with the largest count and the most parents of all
    records.

    A shallow clone counts too few commits and knows no parents.
    """

    __tablename__ = "commit"
    __table_args__ = (UniqueConstraint("project_id", "sha"), *not_negative("first_parent_count"))

    id: Mapped[RowId] = mapped_column(Identity(), primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey(ProjectRow.id, ondelete="CASCADE"))
    sha: Mapped[str]
    parents: Mapped[list[str]]
    first_parent_count: Mapped[int]
    committed_at: Mapped[datetime]
    author: Mapped[str]
    subject: Mapped[str]

    def to_ref(self) -> CommitRef:
        return to_value(CommitRef, self)


class CaseRow(Base):
    """`name` is the record's case ID. Its costs are in `CaseVersionRow`: a spec may count
    differently later.
    """

    __tablename__ = "case"
    __table_args__ = (
        UniqueConstraint("project_id", "name"),
        Index(None, "project_id", "kernel"),
        one_of("direction", ("fwd", "bwd")),
    )

    id: Mapped[RowId] = mapped_column(Identity(), primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey(ProjectRow.id, ondelete="CASCADE"))
    name: Mapped[str]
    kernel: Mapped[str]
    shape: Mapped[dict[str, Any]]
    dtype: Mapped[str]
    direction: Mapped[str]


class CaseVersionRow(Base):
    """Costs and tags of a case. Equal ones share a row; `fingerprint` is their sha256."""

    __tablename__ = "case_version"
    __table_args__ = (
        UniqueConstraint("case_id", "fingerprint"),
        *not_negative("flop_count", "memory_bytes", "bus_bytes", "token_count"),
    )

    id: Mapped[RowId] = mapped_column(Identity(), primary_key=True)
    case_id: Mapped[int] = mapped_column(ForeignKey(CaseRow.id, ondelete="CASCADE"))
    fingerprint: Mapped[str]
    family: Mapped[str]
    flop_count: Mapped[float]
    memory_bytes: Mapped[float]
    bus_bytes: Mapped[float | None]
    token_count: Mapped[float | None]
    tags: Mapped[list[str]]


class RunRow(Base):
    """A run. Results refer to its `number`.

    `project_id` is its commit's. `document` holds fields of the record without a column: commit,
    ceilings, time spent and others. Lists of IDs are in the order of the record. `..._pruned_at`
    tells when retention removed a part. `is_unreachable` is derived: the commit is no longer on its
    branch (`regressions/branch_line.py`).
    """

    __tablename__ = "run"
    __table_args__ = (
        UniqueConstraint("number"),
        Index(None, "commit_id"),
        Index(None, "environment_id"),
        Index(None, "started_at"),
        # covers queries of series: whole rows are long
        Index(
            None,
            "project_id",
            "started_at",
            postgresql_include=[
                "branch",
                "is_dirty",
                "pair_id",
                "is_unreachable",
                "number",
                "run_id",
                "commit_id",
                "environment_id",
                "harness_version",
            ],
        ),
        Index(None, "pair_id", postgresql_where=text("pair_id IS NOT NULL")),
        one_of("pair_side", Side),
        CheckConstraint("(pair_id IS NULL) = (pair_side IS NULL)", name="pair_has_side"),
    )

    run_id: Mapped[UUID] = mapped_column(primary_key=True)
    number: Mapped[RowId] = mapped_column(Identity())
    project_id: Mapped[int] = mapped_column(ForeignKey(ProjectRow.id, ondelete="CASCADE"))
    commit_id: Mapped[int] = mapped_column(ForeignKey(CommitRow.id, ondelete="CASCADE"))
    environment_id: Mapped[int] = mapped_column(ForeignKey(EnvironmentRow.id))
    content_hash: Mapped[str]
    schema_version: Mapped[str]
    harness_version: Mapped[str]
    preset: Mapped[str | None]
    branch: Mapped[str | None]
    is_dirty: Mapped[bool]
    pair_id: Mapped[UUID | None]
    pair_side: Mapped[str | None]
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime]
    ingested_at: Mapped[datetime] = mapped_column(server_default=func.now())
    document: Mapped[dict[str, Any]]
    telemetry: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True), deferred=True)
    outcome_counts: Mapped[dict[str, Any]]
    case_version_ids: Mapped[list[int]] = mapped_column(deferred=True)
    series_ids: Mapped[list[int]] = mapped_column(deferred=True)
    samples_pruned_at: Mapped[datetime | None]
    telemetry_pruned_at: Mapped[datetime | None]
    is_unreachable: Mapped[bool] = mapped_column(server_default=false())


class ArtefactContentRow(Base):
    """The content of a file, stored once."""

    __tablename__ = "artefact_content"
    __table_args__ = (
        CheckConstraint("sha256 ~ '^[0-9a-f]{64}$'", name="sha256"),
        CheckConstraint("size_bytes >= 0", name="size_bytes_not_negative"),
    )

    sha256: Mapped[str] = mapped_column(primary_key=True)
    size_bytes: Mapped[int]
    stored_at: Mapped[datetime] = mapped_column(server_default=func.now())


class ArtefactChunkRow(Base):
    """A piece of a file, a zstd frame of its own: no more is held in memory."""

    __tablename__ = "artefact_chunk"
    __table_args__ = (CheckConstraint("position >= 0", name="position_not_negative"),)

    sha256: Mapped[str] = mapped_column(
        ForeignKey(ArtefactContentRow.sha256, ondelete="CASCADE"), primary_key=True
    )
    position: Mapped[int] = mapped_column(primary_key=True)
    packed: Mapped[bytes] = mapped_column(LargeBinary)


class RunArtefactRow(Base):
    """A file that a record names. `content_sha256` is NULL until this run's content was sent.

    A client that only knows a sha256 cannot read the content that another run sent.
    """

    __tablename__ = "run_artefact"
    __table_args__ = (
        Index(None, "content_sha256"),
        CheckConstraint("content_sha256 = sha256", name="content_is_what_is_named"),
        CheckConstraint("size_bytes >= 0", name="size_bytes_not_negative"),
    )

    run_id: Mapped[UUID] = mapped_column(
        ForeignKey(RunRow.run_id, ondelete="CASCADE"), primary_key=True
    )
    name: Mapped[str] = mapped_column(primary_key=True)
    position: Mapped[int]
    kind: Mapped[str]
    sha256: Mapped[str]
    size_bytes: Mapped[int]
    content_sha256: Mapped[str | None] = mapped_column(ForeignKey(ArtefactContentRow.sha256))
