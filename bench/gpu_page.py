"""The page of `bench/gpu_evidence.py`: targets with what was measured, timers beside each other,
counters, and predictions.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.gpu_plan import FIRST_RESULT, PREDICTIONS, TIMERS
from bench.gpu_targets import measured_targets, timed_by_subject
from roofwatch.ci.static.prediction import estimates_of_call
from roofwatch.collector.compile.cycles.rates import RATES
from roofwatch.collector.device.datasheets import compare_with_datasheet
from roofwatch.model.case_key import CaseKey
from roofwatch.model.grouping import group_by
from roofwatch.model.metrics import format_counter, format_ns, metric
from roofwatch.model.record import RunRecord
from roofwatch.model.results import StaticFacts
from roofwatch.tables.record_sentences import device_summary

_COUNTERS = (
    "duration_ns",
    "sm_throughput_share",
    "issue_slots_share",
    "tensor_pipe_share",
    "dram_throughput_share",
    "achieved_occupancy_share",
    "shared_bank_conflict_count",
    "load_sectors_per_request",
    "local_bytes",
)


def page(folder: Path, failures: Mapping[str, str]) -> str:
    """Markdown: every target with what was measured, and what could not be measured."""
    record = _newest_record(folder)
    lines = ["# Evidence from a GPU", ""]
    # without a record, what failed is all there is to say
    if record is not None:
        lines.extend(_machine_lines(record))
    lines.extend(_target_lines(folder, record))
    lines.extend(_timer_lines(folder))
    lines.extend(_counter_lines(folder))
    if record is not None:
        lines.extend(_prediction_lines(folder / PREDICTIONS, record))
    lines.extend(_submitted_lines(folder / "submit.json"))
    lines.extend(_heading("Missing"))
    for name, why in failures.items():
        lines.append(f"- {name}: {why}")
    return "\n".join(lines) + "\n"


def _heading(title: str) -> list[str]:
    return ["", f"## {title}", ""]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _table_head(*text_columns: str, number_columns: Sequence[str]) -> Iterator[str]:
    """The header of a table whose numbers are aligned to the right."""
    yield _row([*text_columns, *number_columns])
    text_alignments = ["---"] * len(text_columns)
    number_alignments = ["--:"] * len(number_columns)
    yield f"|{'|'.join([*text_alignments, *number_alignments])}|"


def _target_lines(folder: Path, record: RunRecord | None) -> Iterator[str]:
    """A table of the published targets, with what was measured."""
    yield "| target | measured | met |"
    yield "|---|---|---|"
    for target in measured_targets(folder, record):
        is_met = "yes" if target.is_met else "no"
        yield _row([target.text, f"{target.value:.3g}", is_met])


def _newest_record(folder: Path) -> RunRecord | None:
    """The record of the most kernels; None if no step has written one."""
    # Each of these steps measures all kernels of the one before it.
    for name in ("quick.json.gz", "headlines.json.gz", "first.json.gz"):
        record = _record(folder / name)
        if record is not None:
            return record
    return None


def _machine_lines(record: RunRecord) -> Iterator[str]:
    """Device, versions, and how near its measured ceilings come to the datasheet."""
    machine = record.environment
    versions = f"torch {machine.torch_version}, triton {machine.triton_version}"
    yield (
        f"{machine.device_name}, driver {machine.driver_version}, {versions}; "
        f"commit {record.commit.sha[:12]}."
    )
    yield ""
    for line in device_summary(record):
        yield f"- {line}"
    shares: dict[tuple[str | None, ...], str] = {}
    for compared in compare_with_datasheet(record.ceilings, machine.device_name):
        share = compared.measured.per_s / compared.published_per_s
        shares[compared.measured.kind] = f", {share:.0%} of peak (datasheet)"
    for ceiling in record.ceilings:
        subject = ceiling.dtype or ceiling.level or ""
        share_text = ""
        # a ceiling from a datasheet is no share of one
        if ceiling.source == "measured":
            share_text = shares.get(ceiling.kind, "")
        yield f"- {ceiling.resource} {subject}: {ceiling.method}{share_text}"
    yield ""


def _timer_lines(folder: Path) -> Iterator[str]:
    """What each timer says of the same launches, and of the same kernels."""
    contact = _document(folder / f"{FIRST_RESULT[0]}.json")
    if contact is not None:
        yield from _heading("One launch by each timer")
        yield "do_bench of Triton empties the cache before each launch; the others do not."
        yield ""
        for name, times in contact["times"].items():
            texts: list[str] = []
            for timer, time in times.items():
                texts.append(f"{timer} {_time_text(time)}")
            yield f"- {name}: {', '.join(texts)}"
    timer_records: dict[str, RunRecord] = {}
    for timer in TIMERS:
        timer_record = _record(folder / f"timer-{timer}.json.gz")
        # the step of this timer may have failed
        if timer_record is not None:
            timer_records[timer] = timer_record
    if timer_records:
        yield from _heading("Kernels by each timer, hot cache")
        yield from compare_timers(timer_records)


def _time_text(time: float | str) -> str:
    if isinstance(time, str):
        return f"failed ({time})"
    return format_ns(time)


def compare_timers(records: Mapping[str, RunRecord]) -> Iterator[str]:
    """Median by each timer, and the highest relative to the lowest."""
    rows: dict[CaseKey, dict[str, float]] = {}
    for timer, record in records.items():
        for subject, measurement in timed_by_subject(record).items():
            if measurement.median_ns:
                rows.setdefault(subject, {})[timer] = measurement.median_ns
    yield from _table_head("case", "implementation", number_columns=[*records, "difference"])
    for subject, times_ns in rows.items():
        cells: list[str] = []
        for timer in records:
            # A timer may not support a kernel.
            text = ""
            if timer in times_ns:
                text = format_ns(times_ns[timer])
            cells.append(text)
        difference = ""
        if len(times_ns) > 1:
            longest_ns = max(times_ns.values())
            shortest_ns = min(times_ns.values())
            difference = f"{longest_ns / shortest_ns - 1:.1%}"
        yield _row([*subject, *cells, difference])


def _counter_lines(folder: Path) -> Iterator[str]:
    """What Nsight Compute counted, with the executed beside the declared arithmetic."""
    rows: list[str] = []
    for file in sorted(folder.glob("counters-*.json")):
        document = json.loads(file.read_text())
        for call in document["calls"]:
            declared = _declared_flop_count(folder, call["case_id"])
            # a call may launch several functions
            rows.extend(_counter_row(call, counters, declared) for counters in call["counters"])
    # Nsight Compute needs permissions that many machines do not give
    if not rows:
        return
    titles = [name.removesuffix("_ns").replace("_", " ") for name in _COUNTERS]
    yield from _heading("Counters")
    yield from _table_head(
        "case",
        "function",
        number_columns=[*titles, "executed / declared FLOP"],
    )
    yield from rows


def _counter_row(
    call: Mapping[str, Any],
    counters: Mapping[str, Any],
    declared_flop_count: float | None,
) -> str:
    """Counters of one function, with executed beside declared FLOP."""
    values = counters["values"]
    cells = [f"{call['case_id']} {call['implementation']}", counters["function"]]
    for name in _COUNTERS:
        # not every GPU has every counter
        text = ""
        if name in values:
            text = format_counter(name, values[name])
        cells.append(text)
    executed = _flop_text(values.get("executed_flop_count"))
    declared = _flop_text(declared_flop_count)
    cells.append(f"{executed} / {declared}")
    return _row(cells)


def _flop_text(flop_count: float | None) -> str:
    # another case than the newest record has, or a version of Nsight Compute without the counter
    if flop_count is None:
        return "?"
    return metric("flop_per_s").format(flop_count).removesuffix("/s")


def _declared_flop_count(folder: Path, case_id: str) -> float | None:
    """What the cost model of the case declares."""
    record = _newest_record(folder)
    if record is not None:
        for case in record.cases:
            if case.case_id == case_id:
                return case.flop_count
    return None


def _prediction_lines(file: Path, record: RunRecord) -> Iterator[str]:
    """Predicted and measured times of Triton kernels on this kind of GPU."""
    document = _document(file)
    target = record.environment.compile_target
    # another GPU has other rates
    if document is None or target not in RATES:
        return
    device_facts: list[StaticFacts] = []
    for entry in document["static_facts"]:
        facts = StaticFacts.model_validate(entry)
        # predictions are made for several targets
        if facts.target == target:
            device_facts.append(facts)
    rows = list(_prediction_rows(device_facts, record))
    if not rows:
        return
    rated = RATES[target].sheet.names[0]
    yield from _heading("Predicted from machine code")
    yield f"With the rates of an {rated}, which may have another memory bandwidth than this GPU."
    yield ""
    yield "| case | limit | predicted | interval | measured | measured / predicted |"
    yield "|---|---|--:|---|--:|--:|"
    yield from rows


def _prediction_rows(facts: Sequence[StaticFacts], record: RunRecord) -> Iterator[str]:
    """One row for each case that was both predicted and measured."""
    measured_ns: dict[str, float | None] = {}
    for measurement in record.measurements:
        if measurement.implementation == "triton":
            measured_ns[measurement.case_id] = measurement.median_ns
    by_case = group_by(facts, key=lambda entry: entry.case_id)
    for case_id, entries in by_case.items():
        estimates = estimates_of_call({entry.function: entry for entry in entries})
        case_ns = measured_ns.get(case_id)
        # what was not both predicted and measured cannot be compared
        if not estimates or not case_ns:
            continue
        predicted_ns = sum(estimate.predicted_ns for estimate in estimates)
        low_ns = sum(estimate.low_ns for estimate in estimates)
        high_ns = sum(estimate.high_ns for estimate in estimates)
        # the longest function says what binds the call
        longest = max(estimates, key=lambda estimate: estimate.predicted_ns)
        cells = [
            case_id,
            longest.limit,
            format_ns(predicted_ns),
            f"{format_ns(low_ns)} to {format_ns(high_ns)}",
            format_ns(case_ns),
            f"{case_ns / predicted_ns:.2f}",
        ]
        yield _row(cells)


def _submitted_lines(file: Path) -> Iterator[str]:
    verdict = _document(file)
    if verdict is not None:
        yield from _heading("A candidate as fast as torch")
        yield f"`submit`: {verdict['verdict']}, {verdict['reason']}"


def _document(file: Path) -> Any:
    if not file.exists():
        return None
    return json.loads(file.read_text())


def _record(file: Path) -> RunRecord | None:
    if not file.exists():
        return None
    return RunRecord.read(file)
