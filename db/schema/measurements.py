"""The tables of results, which grow with every run.

They have a foreign key to their run, and none to cases and series: checking these would slow down
every ingest.
"""

from typing import Annotated, Any

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    ColumnElement,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    SmallInteger,
    UniqueConstraint,
    and_,
    false,
    func,
)
from sqlalchemy.orm import Mapped, mapped_column

from roofwatch.db.schema.runs import CaseRow, CaseVersionRow, RunRow
from roofwatch.db.schema.table import Base, RowId, not_negative, one_of
from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import CacheState, Timer
from roofwatch.model.metrics import STORED, Better

RunNumber = Annotated[int, mapped_column(Integer, ForeignKey(RunRow.number, ondelete="CASCADE"))]


class _CaseResult:
    """Key of a result of one case and implementation in one run. The run comes first: queries look
    results up by it.
    """

    run_number: Mapped[RunNumber] = mapped_column(primary_key=True, sort_order=-3)
    case_id: Mapped[RowId] = mapped_column(primary_key=True, sort_order=-2)
    implementation: Mapped[str] = mapped_column(primary_key=True, sort_order=-1)

    @classmethod
    def is_of(cls, owner: Any) -> ColumnElement[bool]:
        """Check for the same run, case and implementation as another result."""
        same = (
            getattr(cls, name) == getattr(owner, name)
            for name in ("run_number", "case_id", "implementation")
        )
        return and_(*same)


class SeriesRow(Base):
    """What all measurements of a series share. A change of case version, timer or cache begins
    another row.

    `metrics` are those of `metrics.STORED` that any measurement of the series has.
    """

    __tablename__ = "series"
    __table_args__ = (
        UniqueConstraint(
            "case_version_id",
            "implementation",
            "timer",
            "cache",
            "runner_class",
            name="uq_series_identity",
        ),
        one_of("timer", Timer),
        one_of("cache", CacheState),
    )

    id: Mapped[RowId] = mapped_column(Identity(), primary_key=True)
    case_version_id: Mapped[int] = mapped_column(ForeignKey(CaseVersionRow.id, ondelete="CASCADE"))
    implementation: Mapped[str]
    timer: Mapped[str]
    cache: Mapped[str]
    runner_class: Mapped[str]
    metrics: Mapped[list[str]]


_METRICS = [metric.key for metric in STORED]
_MetricColumns: Any = type(
    "_MetricColumns",
    (),
    {key: mapped_column(Double, nullable=True, sort_order=-1) for key in _METRICS},
)
"""A column for each metric of `metrics.STORED`."""


class MeasurementRow(_MetricColumns, Base):  # type: ignore[misc]  # columns of a table of ours
    """One case and implementation in one run. Measured values are NULL unless the outcome is `ok`.

    There is no unique index on run and series: it would be larger than both others, and records are
    validated.
    """

    __tablename__ = "measurement"
    __table_args__ = (
        Index(None, "run_number"),
        Index(None, "series_id"),
        one_of("outcome", Outcome),
        CheckConstraint("(outcome = 'ok') = (median_ns IS NOT NULL)", name="time_only_if_ok"),
        CheckConstraint(
            "num_nulls(median_ns, q1_ns, q3_ns, sample_count, block_count) IN (0, 5)",
            name="time_whole",
        ),
        CheckConstraint(
            "0 < q1_ns AND q1_ns <= median_ns AND median_ns <= q3_ns", name="times_in_order"
        ),
        CheckConstraint("sample_count > 0 AND block_count > 0", name="samples_not_empty"),
        CheckConstraint(
            f"outcome = 'ok' OR num_nonnulls({', '.join(_METRICS)}) = 0",
            name="values_only_if_ok",
        ),
        *not_negative("launch_count", *_METRICS),
    )

    # in an order without padding between columns
    median_ns: Mapped[float | None]
    q1_ns: Mapped[float | None]
    q3_ns: Mapped[float | None]
    # timed launches
    launch_count: Mapped[int]
    run_number: Mapped[RunNumber] = mapped_column()
    series_id: Mapped[RowId] = mapped_column()
    sample_count: Mapped[int | None] = mapped_column(Integer)
    block_count: Mapped[int | None] = mapped_column(SmallInteger)
    outcome: Mapped[str]
    # the device was throttled or shared in a block
    is_degraded: Mapped[bool]
    is_memory_bound: Mapped[bool | None]
    message: Mapped[str | None]

    # SQLAlchemy's own hook, read once
    __mapper_args__ = {"primary_key": [run_number, series_id]}  # noqa: RUF012


class SampleSetRow(Base):
    """The samples of a measurement, and what was seen while they were taken. Retention removes
    these.
    """

    __tablename__ = "sample_set"

    run_number: Mapped[RunNumber] = mapped_column(primary_key=True)
    series_id: Mapped[RowId] = mapped_column(primary_key=True)
    # of all blocks, one block after the other
    samples_ns: Mapped[list[float]]
    # samples of each block
    block_lengths: Mapped[list[int]]
    # fields of the record's measurement, and of its blocks, without samples and defaults
    facts: Mapped[dict[str, Any]]


class AccuracyRow(_CaseResult, Base):
    __tablename__ = "accuracy"
    __table_args__ = (
        Index(None, "case_id"),
        one_of("executor", ("device", "interpreter")),
        one_of("outcome", Outcome),
    )

    position: Mapped[int]
    executor: Mapped[str]
    outcome: Mapped[str]
    message: Mapped[str | None]


class TensorErrorRow(_CaseResult, Base):
    __tablename__ = "tensor_error"
    __table_args__ = (*not_negative("max_abs_error", "rmse_ratio", "baseline_rmse_ratio"),)

    position: Mapped[int] = mapped_column(primary_key=True)
    tensor: Mapped[str]
    max_abs_error: Mapped[float]
    rmse_ratio: Mapped[float]
    baseline_rmse_ratio: Mapped[float | None]
    passed: Mapped[bool]
    # other values that were tried; none for those that the case declares
    regime: Mapped[str | None]

    @classmethod
    def part(cls) -> ColumnElement[str]:
        """What a series is about: a tensor, or a tensor with other values, as `out, peaked`."""
        return func.concat_ws(", ", cls.tensor, cls.regime)


class StaticFactRow(Base):
    """Facts of machine code.

    Runs with identical facts share a row; `fingerprint` is their sha256.
    """

    __tablename__ = "static_fact"
    __table_args__ = (
        UniqueConstraint("case_id", "fingerprint"),
        one_of("outcome", Outcome),
        CheckConstraint("(outcome = 'ok') = (code_hash IS NOT NULL)", name="code_only_if_ok"),
    )

    id: Mapped[RowId] = mapped_column(Identity(), primary_key=True)
    case_id: Mapped[int] = mapped_column(ForeignKey(CaseRow.id, ondelete="CASCADE"))
    fingerprint: Mapped[str]
    implementation: Mapped[str]
    function: Mapped[str]
    target: Mapped[str]
    outcome: Mapped[str]
    message: Mapped[str | None]
    configuration: Mapped[dict[str, Any]]
    toolchain: Mapped[dict[str, Any]]
    thread_count: Mapped[int | None]
    registers: Mapped[int | None]
    accumulation_registers: Mapped[int | None]
    scalar_registers: Mapped[int | None]
    spilled_registers: Mapped[int | None]
    spill_store_count: Mapped[int | None]
    spill_load_count: Mapped[int | None]
    local_bytes: Mapped[int | None]
    shared_bytes: Mapped[int | None]
    static_shared_bytes: Mapped[int | None]
    tensor_memory_columns: Mapped[int | None]
    theoretical_occupancy: Mapped[float | None]
    occupancy_limits: Mapped[list[str]]
    instruction_count: Mapped[int | None]
    instructions: Mapped[dict[str, Any]]
    code_bytes: Mapped[int | None]
    code_hash: Mapped[str | None]
    # what the cycle model says of the launch, as a document
    estimate: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))


class CompilationRow(Base):
    """The facts that a run found, and the time of each compile stage."""

    __tablename__ = "compilation"
    __table_args__ = (Index(None, "static_fact_id"),)

    run_number: Mapped[RunNumber] = mapped_column(primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    static_fact_id: Mapped[RowId]
    compile_ns: Mapped[dict[str, Any]]


DOCUMENT_KINDS = ("counters", "profiles", "overflow_proofs", "operator_costs")
"""Lists of the record that are stored as documents."""


class CaseDocumentRow(_CaseResult, Base):
    """Hardware counters of one launch, a profile of some calls, or an analysis without a GPU, as a
    document: no query filters by their values.
    """

    __tablename__ = "case_document"
    __table_args__ = (Index(None, "case_id"), one_of("kind", DOCUMENT_KINDS))

    # the list of the record
    kind: Mapped[str] = mapped_column(primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    document: Mapped[dict[str, Any]]


class ImportedRow(_CaseResult, Base):
    """A number from another tool's file. `key` is the metric of its series."""

    __tablename__ = "imported"
    __table_args__ = (
        Index(None, "case_id"),
        one_of("better", Better),
        one_of("outcome", Outcome),
        CheckConstraint("(outcome = 'ok') = (value IS NOT NULL)", name="value_only_if_ok"),
    )

    position: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str]
    metric: Mapped[str]
    statistic: Mapped[str]
    unit: Mapped[str]
    better: Mapped[str]
    outcome: Mapped[str]
    message: Mapped[str | None]
    value: Mapped[float | None]
    low: Mapped[float | None]
    high: Mapped[float | None]
    sample_count: Mapped[int | None] = mapped_column(BigInteger)
    # of a library, measured beside the code of the project
    is_control: Mapped[bool] = mapped_column(server_default=false())
    # of the sources that the kernel imports
    code_hash: Mapped[str | None]
