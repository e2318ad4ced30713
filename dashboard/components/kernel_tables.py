"""What a record says about one kernel, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from roofwatch.ci.ab.side_by_side import BestImplementation, find_best
from roofwatch.ci.diagnosis.finding import Diagnosis
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.measurement import Measurement
from roofwatch.collector.record.metrics import metric
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.record.results import Accuracy, StaticFacts
from roofwatch.dashboard.comparison import changed_facts
from roofwatch.dashboard.wording import counter_text, natural_order, outcome_text, percent
from roofwatch.db.values import Verdict

FACT_TITLES: Mapping[str, str] = {
    "registers": "registers",
    "spilled_registers": "spilled",
    "spill_store_count": "spill stores",
    "spill_load_count": "spill loads",
    "local_bytes": "local memory",
    "shared_bytes": "shared memory",
    "theoretical_occupancy": "occupancy",
    "instruction_count": "instructions",
    "code_bytes": "code size",
}
"""Column titles of metrics of compiled code."""
_HASH_LENGTH = 12
_CONSTANT_COLUMNS = ("case", "implementation", "function", "outcome", "configuration")
"""Columns that are left out if all rows have the same value."""
_NOT_CHANGED = ("same machine code", "first commit")
_LEADS = {
    Verdict.IMPROVED: "● clearly faster",
    Verdict.UNCHANGED: "= as fast",
    Verdict.REGRESSED: "◆ slower in paired blocks",
    Verdict.INCONCLUSIVE: "? within the noise",
}
"""Text of the verdict on the best implementation against the second best."""


def diagnosis_table(diagnoses: Sequence[Diagnosis]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "case": [one.case_id for one in diagnoses],
            "implementation": [one.implementation for one in diagnoses],
            "limit": [str(one.limit) for one in diagnoses],
            "why": [str(one.headline) for one in diagnoses],
            "first finding": [one.findings[0].title if one.findings else "" for one in diagnoses],
            "try": [one.findings[0].advice if one.findings else "" for one in diagnoses],
        }
    )


def best_table(measurements: Sequence[Measurement]) -> pd.DataFrame:
    """Return one row per case: the best implementation, its lead, and the time of each implementation."""
    best = {one.case_id: one for one in find_best(measurements)}
    names = sorted({one.implementation for one in measurements})
    by_key = {(one.case_id, one.implementation): one for one in measurements}
    case_ids = sorted({one.case_id for one in measurements}, key=natural_order)
    return pd.DataFrame([_best_row(case_id, best.get(case_id), names, by_key) for case_id in case_ids])


def _best_row(
    case_id: str,
    best: BestImplementation | None,
    names: Sequence[str],
    by_key: Mapping[tuple[str, str], Measurement],
) -> dict[str, object]:
    times = {f"{name}, time": _time_text(by_key.get((case_id, name))) for name in names}
    if best is None:
        unknown = {"time": None, "lead": "", "significant?": "", "utilisation": None, "bound": ""}
        return {"case": case_id, "best": "none was measured", **unknown, **times}
    measurement, against = by_key[case_id, best.implementation], best.comparison
    return {
        "case": case_id,
        "best": best.implementation,
        "time": measurement.median_ns,
        "lead": "" if against is None else f"{percent(against.speedup - 1)} against {best.runner_up}",
        "significant?": "no other timed in the same way" if against is None else _LEADS[against.verdict],
        "utilisation": measurement.utilisation,
        "bound": measurement.bound or "",
        **times,
    }


def _time_text(measurement: Measurement | None) -> str:
    if measurement is None:
        return "not in this run"
    median_ns = measurement.median_ns
    return outcome_text(measurement.outcome) if median_ns is None else metric("median_ns").format(median_ns)


def static_table(facts: Sequence[StaticFacts], earlier: Sequence[StaticFacts] | None) -> pd.DataFrame:
    """Return the compiler facts per function and target, changed ones first.

    Args:
        facts: Facts of this run.
        earlier: Facts of the previous measured commit, if any.
    """
    before = {_key(one): one for one in earlier or ()}
    changes = {
        _key(one): "first commit" if earlier is None else changed_facts(before.get(_key(one)), one) for one in facts
    }
    ordered = sorted(facts, key=lambda one: (changes[_key(one)] in _NOT_CHANGED, *map(natural_order, _key(one))))
    values = {
        "threads": [one.thread_count for one in ordered],
        **{title: [getattr(one, name) for one in ordered] for name, title in FACT_TITLES.items()},
    }
    return pd.DataFrame(
        {
            "target": [one.target for one in ordered],
            "case": [one.case_id for one in ordered],
            "implementation": [one.implementation for one in ordered],
            "function": [one.function for one in ordered],
            "changed": [
                text if text in _NOT_CHANGED else f"◆ {text}" for text in (changes[_key(one)] for one in ordered)
            ],
            "outcome": [outcome_text(one.outcome) for one in ordered],
            "limited by": [", ".join(one.occupancy_limits) for one in ordered],
            **{title: own for title, own in values.items() if any(value is not None for value in own)},
            "code hash": [(one.code_hash or "")[:_HASH_LENGTH] for one in ordered],
            "configuration": [", ".join(f"{k}={v}" for k, v in one.configuration.items()) for one in ordered],
        }
    )


def _key(facts: StaticFacts) -> tuple[str, str, str, str]:
    return facts.case_id, facts.implementation, facts.function, facts.target


def without_constants(frame: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, str]]:
    """Remove constant text columns; return the table and the constants."""
    same = [name for name in _CONSTANT_COLUMNS if name in frame and frame[name].nunique() == 1]
    return frame.drop(columns=same), {name: value for name in same if (value := str(frame[name].iloc[0]))}


def counters_table(record: RunRecord) -> pd.DataFrame:
    """Return one row per counter and one column per kernel launch."""
    columns = {
        f"{one.case_id} · {one.implementation} · {one.function}"
        + (f" #{one.launch_index}" if one.launch_index else ""): one.values
        for one in record.counters
    }
    names = list(dict.fromkeys(name for values in columns.values() for name in values))
    return pd.DataFrame(
        {
            "counter": [name.replace("_", " ") for name in names],
            **{
                title: [counter_text(name, values[name]) if name in values else "not read" for name in names]
                for title, values in columns.items()
            },
        }
    )


def profiler_table(record: RunRecord) -> pd.DataFrame:
    """Return the findings of the profiler's own rules."""
    return pd.DataFrame(
        [
            {
                "function": one.function,
                "rule": finding.rule,
                "says": finding.message,
                "saves at most": finding.estimated_speedup,
            }
            for one in record.counters
            for finding in one.findings
        ]
    )


def accuracy_table(accuracies: Sequence[Accuracy]) -> pd.DataFrame:
    """Return one row per tensor with its error; failed checks have a row too."""
    error, largest = metric("rmse_ratio").title, metric("max_abs_error").title
    rows: list[dict[str, object]] = []
    for one in accuracies:
        found: list[dict[str, object]] = [
            {
                "outcome": outcome_text(Outcome.OK if tensor.passed else Outcome.INCORRECT),
                "tensor": tensor.tensor,
                error: tensor.rmse_ratio,
                "eager's error": tensor.baseline_rmse_ratio,
                "relative to eager": (
                    tensor.rmse_ratio / tensor.baseline_rmse_ratio if tensor.baseline_rmse_ratio else None
                ),
                largest: tensor.max_abs_error,
            }
            for tensor in one.tensors
        ]
        for row in found or [{"outcome": outcome_text(one.outcome), "tensor": ""}]:
            where = {"where": one.executor, "message": one.message or ""}
            rows.append({"case": one.case_id, "implementation": one.implementation, **row, **where})
    return pd.DataFrame(rows)
