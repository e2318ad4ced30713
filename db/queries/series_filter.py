"""Which series are asked for, and by which runs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ARRAY, BigInteger, ColumnElement, Text, and_, cast, select, tuple_
from sqlalchemy.dialects.postgresql import array
from sqlalchemy.sql.selectable import LateralFromClause

from roofwatch.collector.record.metrics import METRICS, Layer
from roofwatch.db.queries.series_runs import of_series
from roofwatch.db.schema.runs import CaseRow, ProjectRow, RunRow
from roofwatch.db.values import SeriesKey


@dataclass(frozen=True)
class SeriesFilter:
    """None means: whatever it is."""

    project: str
    keys: frozenset[SeriesKey] | None
    kernel: str | None
    metrics: Collection[str] | None
    include_dirty: bool
    include_pairs: bool
    include_branches: bool
    include_conditions: bool = False
    subjects: frozenset[tuple[str, str]] | None = None
    since: datetime | None = None
    """Of runs that began no earlier."""
    until: datetime | None = None
    """Of runs that began before."""
    cases: frozenset[str] | None = None

    def metric_keys(self, layer: Layer) -> list[str]:
        """The metrics of a layer that are wanted, first one first."""
        return [
            key
            for key in metric_keys(layer)
            if (self.metrics is None or key in self.metrics)
            and (self.keys is None or any(series.metric == key for series in self.keys))
        ]

    def runs(self) -> ColumnElement[bool]:
        """Condition on runs that are joined with their commit and project."""
        conditions = [
            of_series(
                self.project,
                include_dirty=self.include_dirty,
                include_pairs=self.include_pairs,
                include_branches=self.include_branches,
            )
        ]
        if self.since is not None:
            conditions.append(RunRow.started_at >= self.since)
        if self.until is not None:
            conditions.append(RunRow.started_at < self.until)
        return and_(*conditions)

    def run_of(self, run_number: Any) -> LateralFromClause:
        """The run with a number, if it is wanted, of what is joined with its project. Each is looked up by its number:
        of a plain join Postgres chooses the order, and without statistics it reads all results for each run.
        """
        columns = (RunRow.number, RunRow.environment_id)
        return (
            select(*columns)
            .where(RunRow.number == run_number, RunRow.project_id == ProjectRow.id, self.runs())
            .correlate_except(RunRow)
            .offset(0)
            .lateral("run_of")
        )

    def subject(self, implementation: ColumnElement[str] | Any) -> ColumnElement[bool]:
        """Condition on what is joined with its case and has an implementation."""
        conditions = []
        if self.kernel is not None:
            conditions.append(CaseRow.kernel == self.kernel)
        if self.cases is not None:
            conditions.append(CaseRow.name.in_(self.cases))
        if self.subjects is not None:
            conditions.append(tuple_(CaseRow.name, implementation).in_(self.subjects))
        if self.keys is not None:
            conditions.append(CaseRow.name.in_({key.case_id for key in self.keys}))
            conditions.append(implementation.in_({key.implementation for key in self.keys}))
        return and_(True, *conditions)


class Subject(NamedTuple):
    """What some series have in common, as a row of the one query that lists all series of a project."""

    layer: str
    case_id: str
    implementation: str
    runner_class: str | None
    function: str | None
    target: str | None
    tensor: str | None
    counts: list[int]
    """How much there is of each metric that is wanted, as its layer counts."""


def subject_columns(
    layer: Layer,
    case_id: Any,
    implementation: Any,
    *,
    counts: Collection[Any],
    runner_class: Any = None,
    function: Any = None,
    target: Any = None,
    tensor: Any = None,
) -> list[ColumnElement[Any]]:
    """The columns of a `Subject`."""
    parts = (layer.value, case_id, implementation, runner_class, function, target, tensor)
    texts: list[ColumnElement[Any]] = [cast(part, Text) for part in parts]
    counted = cast(array([cast(each, BigInteger) for each in counts]), ARRAY(BigInteger))
    return [each.label(name) for name, each in zip(Subject._fields, [*texts, counted], strict=True)]


def metric_keys(layer: Layer) -> list[str]:
    return [key for key, metric in METRICS.items() if metric.layer is layer]


def is_first_of_layer(metric: str) -> bool:
    return metric_keys(METRICS[metric].layer)[0] == metric
