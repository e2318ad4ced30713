"""What a record says of one kernel, as tables. Verdicts come from `ci`; text from records stays text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import pandas as pd

from roofwatch.ci.ab.side_by_side import BestImplementation, find_best
from roofwatch.ci.diagnosis.diagnose import diagnose
from roofwatch.ci.diagnosis.finding import Diagnosis
from roofwatch.ci.diagnosis.record_evidence import RecordEvidence
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.measurement import Measurement
from roofwatch.collector.record.metrics import METRICS, metric
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.record.results import Accuracy, StaticFacts
from roofwatch.dashboard.comparison import changed_facts
from roofwatch.dashboard.quantities import counter_text
from roofwatch.dashboard.wording import natural_order, outcome_text, percent
from roofwatch.db.queries.run_values import StaticRow
from roofwatch.db.values import Verdict

STATIC_COLUMNS: Mapping[str, str] = {
    "registers": "registers",
    "spilled_registers": "spilled",
    "spill_store_count": "spill stores",
    "spill_load_count": "spill loads",
    "local_bytes": "local (B)",
    "shared_bytes": "shared (B)",
    "instruction_count": "instructions",
    "code_bytes": "code (B)",
}
"""Facts that are metrics, with the heading of their column."""
_HASH_LENGTH = 12
_TOLD_ONCE = ("case", "implementation", "function", "outcome", "configuration")
"""Columns that are needed only where rows differ in them."""
_NOT_CHANGED = ("same machine code", "first commit")
_LEADS = {
    Verdict.IMPROVED: "● clearly faster",
    Verdict.UNCHANGED: "= as fast",
    Verdict.REGRESSED: "◆ slower by pairs of blocks",
    Verdict.INCONCLUSIVE: "? within the noise",
}
"""What the verdict on the best against its runner-up is called."""


def of_kernel(record: RunRecord, kernel: str) -> RunRecord:
    """The part of a record that is about one kernel."""
    cases = {case.case_id for case in record.cases if case.kernel == kernel}
    return record.model_copy(
        update={
            "cases": tuple(case for case in record.cases if case.case_id in cases),
            "measurements": tuple(one for one in record.measurements if one.case_id in cases),
            "accuracies": tuple(one for one in record.accuracies if one.case_id in cases),
            "static_facts": tuple(one for one in record.static_facts if one.case_id in cases),
            "counters": tuple(one for one in record.counters if one.case_id in cases),
        }
    )


def diagnoses_of(record: RunRecord, kernel: str) -> list[Diagnosis]:
    """Of every case and implementation of a kernel that was timed; the rest of the record is evidence too."""
    cases = {case.case_id for case in record.cases if case.kernel == kernel}
    evidence = RecordEvidence(record)
    return [
        diagnose(evidence.of(one.case_id, one.implementation))
        for one in record.measurements
        if one.case_id in cases and one.outcome is not Outcome.UNSUPPORTED
    ]


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


class Order(StrEnum):
    """In which cases are listed."""

    CASE = "case"
    UTILISATION = "lowest utilisation"
    TIME = "longest time"


def best_table(measurements: Sequence[Measurement], order: Order = Order.CASE) -> pd.DataFrame:
    """A row a case, a column an implementation; with the lead of the best one and whether it is beyond the noise. What
    the order asks of the best one and it does not have comes last.
    """
    best = {one.case_id: one for one in find_best(measurements)}
    names = sorted({one.implementation for one in measurements})
    by_key = {(one.case_id, one.implementation): one for one in measurements}
    case_ids = sorted({one.case_id for one in measurements}, key=natural_order)
    if order is not Order.CASE:
        case_ids.sort(key=lambda case_id: _place(best.get(case_id), case_id, by_key, order))
    return pd.DataFrame([_best_row(case_id, best.get(case_id), names, by_key) for case_id in case_ids])


def _place(
    best: BestImplementation | None, case_id: str, by_key: Mapping[tuple[str, str], Measurement], order: Order
) -> float:
    measurement = None if best is None else by_key[case_id, best.implementation]
    if measurement is None:
        return math.inf
    if order is Order.UTILISATION:
        return math.inf if measurement.utilisation is None else measurement.utilisation
    return math.inf if measurement.median_ns is None else -measurement.median_ns


def _best_row(
    case_id: str,
    best: BestImplementation | None,
    names: Sequence[str],
    by_key: Mapping[tuple[str, str], Measurement],
) -> dict[str, object]:
    measurement = None if best is None else by_key[case_id, best.implementation]
    return {
        "case": case_id,
        "best": "none was measured" if best is None else best.implementation,
        "lead": _lead_text(best),
        "beyond noise?": _lead_verdict(best),
        "utilisation": None if measurement is None else measurement.utilisation,
        "bound": (measurement.bound if measurement is not None else None) or "",
        **{f"{name}, time": _time_text(by_key.get((case_id, name))) for name in names},
    }


def _lead_text(best: BestImplementation | None) -> str:
    """`+55.0% to triton`: how much longer the runner-up takes."""
    if best is None or best.comparison is None:
        return ""
    return f"{percent(best.comparison.speedup - 1)} against {best.runner_up}"


def _lead_verdict(best: BestImplementation | None) -> str:
    if best is None:
        return ""
    return "no other was timed alike" if best.comparison is None else _LEADS[best.comparison.verdict]


def _time_text(measurement: Measurement | None) -> str:
    if measurement is None:
        return "not in this run"
    median_ns = measurement.median_ns
    return outcome_text(measurement.outcome) if median_ns is None else metric("median_ns").format(median_ns)


def static_table(facts: Sequence[StaticFacts], earlier: Sequence[StaticFacts] | None) -> pd.DataFrame:
    """What each function compiled to on each target, what changed first.

    Args:
        facts: Of this run.
        earlier: Of the commit that was measured before; None where there is none.
    """
    before = {_key(one): one for one in earlier or ()}
    words = {_key(one): _changed(before.get(_key(one)), one, has_earlier=earlier is not None) for one in facts}
    ordered = sorted(facts, key=lambda one: (words[_key(one)] in _NOT_CHANGED, *map(natural_order, _key(one))))
    frame = pd.DataFrame(
        {
            "target": [one.target for one in ordered],
            "case": [one.case_id for one in ordered],
            "implementation": [one.implementation for one in ordered],
            "function": [one.function for one in ordered],
            "changed": [_marked(words[_key(one)]) for one in ordered],
            "outcome": [outcome_text(one.outcome) for one in ordered],
            "occupancy": [one.theoretical_occupancy for one in ordered],
            "limited by": [", ".join(one.occupancy_limits) for one in ordered],
            "threads": _counts(one.thread_count for one in ordered),
            **{title: _counts(getattr(one, key) for one in ordered) for key, title in STATIC_COLUMNS.items()},
            "code hash": [(one.code_hash or "")[:_HASH_LENGTH] for one in ordered],
            "configuration": [", ".join(f"{k}={v}" for k, v in one.configuration.items()) for one in ordered],
        }
    )
    unused = [title for title in ("threads", *STATIC_COLUMNS.values()) if frame[title].isna().all()]
    return frame.drop(columns=unused)


def without_constants(frame: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, str]]:
    """A table without the columns of text that say the same in every row, and what they say; numbers stay."""
    same = [name for name in _TOLD_ONCE if name in frame and frame[name].nunique() == 1]
    return frame.drop(columns=same), {name: value for name in same if (value := str(frame[name].iloc[0]))}


def static_help() -> dict[str, str]:
    """What the columns of the table mean."""
    return {title: METRICS[key].title for key, title in STATIC_COLUMNS.items()} | {
        "occupancy": "Warps that can be resident / warps that there are slots for, by what the code needs.",
        "limited by": "What allows no further block on a multiprocessor.",
    }


def _counts(values: Iterable[int | None]) -> pd.api.extensions.ExtensionArray:
    return pd.array(list(values), dtype="Int64")


def _key(facts: StaticFacts) -> tuple[str, str, str, str]:
    return facts.case_id, facts.implementation, facts.function, facts.target


def _changed(before: StaticFacts | None, now: StaticFacts, *, has_earlier: bool) -> str:
    if not has_earlier:
        return "first commit"
    return changed_facts(None if before is None else _row(before), _row(now))


def _row(facts: StaticFacts) -> StaticRow:
    return StaticRow(**{name: getattr(facts, name) for name in StaticRow.__dataclass_fields__})


def _marked(words: str) -> str:
    return words if words in _NOT_CHANGED else f"◆ {words}"


def counters_table(record: RunRecord) -> pd.DataFrame:
    """A row a counter, a column a kernel of a call."""
    columns = {
        f"{one.case_id} · {one.implementation} · {one.function}"
        + (f" #{one.launch_index}" if one.launch_index else ""): one.values
        for one in record.counters
    }
    names = list(dict.fromkeys(name for values in columns.values() for name in values))
    return pd.DataFrame(
        {
            "counter": [name.replace("_", " ") for name in names],
            **{title: [_counter_text(name, values.get(name)) for name in names] for title, values in columns.items()},
        }
    )


def _counter_text(name: str, value: float | None) -> str:
    return "not read" if value is None else counter_text(name, value)


def profiler_table(record: RunRecord) -> pd.DataFrame:
    """What the profiler's own rules say."""
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
    """A row a tensor beside what it is held against; a check that compared nothing has a row too."""
    return pd.DataFrame([row for one in accuracies for row in _tensor_rows(one)])


def _tensor_rows(accuracy: Accuracy) -> list[dict[str, object]]:
    common: dict[str, object] = {"case": accuracy.case_id, "implementation": accuracy.implementation}
    last = {"where": accuracy.executor, "message": accuracy.message or ""}
    error, largest = metric("rmse_ratio").title, metric("max_abs_error").title
    if not accuracy.tensors:
        nothing = {"tensor": "", error: None, "eager's error": None, "share of eager's": None, largest: None}
        return [common | {"outcome": outcome_text(accuracy.outcome)} | nothing | last]
    return [
        common
        | {
            "outcome": outcome_text(Outcome.OK if tensor.passed else Outcome.INCORRECT),
            "tensor": tensor.tensor,
            error: tensor.rmse_ratio,
            "eager's error": tensor.baseline_rmse_ratio,
            "share of eager's": tensor.rmse_ratio / tensor.baseline_rmse_ratio if tensor.baseline_rmse_ratio else None,
            largest: tensor.max_abs_error,
        }
        | last
        for tensor in accuracy.tensors
    ]
