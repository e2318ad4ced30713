"""What is stored, as tables on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from roofwatch import tables
from roofwatch.ci.changepoint.detect import NoiseFloor
from roofwatch.collector.record.metrics import METRICS
from roofwatch.db.auth.values import Triage, TriageState
from roofwatch.db.queries.run_values import RunSummary
from roofwatch.db.values import Series
from roofwatch.store.questions import TriagedRegression
from roofwatch.terminal import printable


def runs_table(runs: Sequence[RunSummary]) -> Table:
    table = Table("run", "commit", "runner class", "began", "outcomes")
    for run in runs:
        marks = (" (work tree differed)" if run.is_dirty else "") + (" (side of a pair)" if run.is_pair_side else "")
        marks += " (no longer on its branch)" if run.is_unreachable else ""
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in run.outcome_counts.items())
        table.add_row(
            printable(run.run_id),
            printable(f"{run.commit.short_sha} {run.commit.subject}{marks}"),
            printable(run.runner_class),
            f"{run.started_at:%Y-%m-%d %H:%M}",
            printable(outcomes),
        )
    return table


def series_table(series: Sequence[Series], noise_floors: Sequence[NoiseFloor | None]) -> Table:
    """A row for each, with the newest value it has; of times, how noisy they are and which step is found in them."""
    table = Table("series", "metric", "runner class", "points", "failed", "newest", "at commit", "noise", "detectable")
    for one, floor in zip(series, noise_floors, strict=True):
        values = [point for point in one.points if point.value is not None]
        newest = values[-1] if values else None
        table.add_row(
            printable(one.key.label),
            printable(one.key.metric),
            printable(one.key.runner_class),
            str(len(one.points)),
            str(len(one.points) - len(values) or ""),
            "" if newest is None or newest.value is None else _value(one.key.metric, newest.value),
            "" if newest is None else printable(newest.commit.short_sha),
            "" if floor is None else f"±{floor.deviation:.1%}",
            "" if floor is None else f"{floor.minimum_detectable_change:.1%}",
        )
    return table


def _value(key: str, value: float) -> str:
    """As its metric writes it; a newer server may know metrics that this version does not."""
    return METRICS[key].format(value) if key in METRICS else f"{value:g}"


def regressions_table(found: Sequence[TriagedRegression]) -> Table:
    """As `ingest` shows them, and what was decided about each."""
    return tables.regressions([one.regression for one in found], [_decided(one.triage) for one in found])


def _decided(triage: Triage) -> str:
    word = "" if triage.state is TriageState.NEW else triage.state.value
    return word if triage.person is None else f"{word} by {triage.person}"
