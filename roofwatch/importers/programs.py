"""Benchmarks of programs and functions: pytest-benchmark, Google Benchmark, hyperfine, Bencher
Metric Format.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from roofwatch.importers import (
    HIGHER,
    LOWER,
    UNKNOWN,
    ImportedCommit,
    ImportedRow,
    ImportedRun,
    Json,
    JsonImporter,
    Meaning,
    number_of,
    numbers_of,
    rows_of,
    samples_of,
    seconds_of,
    with_words,
)
from roofwatch.model.machine import Outcome

# --- pytest-benchmark. Source: pytest_benchmark/stats.py: all times in seconds, `ops` is 1 / mean

_PYTEST_TIMES = {
    name: Meaning(
        metric="time",
        unit="s",
        better=LOWER,
        statistic=name,
    )
    for name in ("min", "max", "mean", "median", "q1", "q3", "ld15iqr", "hd15iqr")
} | {
    # the total depends on the number of rounds
    **{
        name: Meaning(
            metric="time",
            unit="s",
            better=UNKNOWN,
            statistic=name,
        )
        for name in ("stddev", "iqr", "total")
    },
    "ops": Meaning(
        metric="ops",
        unit="1/s",
        better=HIGHER,
        statistic="mean",
    ),
}
_PYTEST_COUNTS = {
    name: Meaning(name, "count")
    for name in ("rounds", "iterations", "iqr_outliers", "stddev_outliers")
}


def _pytest_benchmark(document: Json, _path: Path) -> ImportedRun:
    info = document.get("commit_info") or {}
    sha = info.get("id")
    branch = info.get("branch")
    cpu = (document.get("machine_info") or {}).get("cpu") or {}
    rows: list[ImportedRow] = []
    for benchmark in document["benchmarks"]:
        rows.extend(_pytest_rows(benchmark))
    return ImportedRun(
        tool="pytest-benchmark",
        tool_version=document.get("version"),
        rows=tuple(rows),
        commit=ImportedCommit(
            # What the plugin writes outside a repository.
            sha=None if sha in (None, "unversioned", "unknown") else sha,
            committed_at=seconds_of(info.get("time")),
            measured_at=seconds_of(document.get("datetime")),
            branch=None if branch in ("(unknown)", "(detached head)") else branch,
            is_dirty=bool(info.get("dirty")),
        ),
        project=info.get("project"),
        device=cpu.get("brand_raw") or cpu.get("brand"),
    )


def _pytest_rows(benchmark: Json) -> Iterator[ImportedRow]:
    stats = benchmark["stats"]
    rounds = stats.get("rounds")
    shared: dict[str, Any] = {
        "case": benchmark["fullname"],
        "parameters": benchmark.get("params") or {},
    }
    # A benchmark that raised has no statistics.
    if not rounds:
        yield ImportedRow(
            metric="time",
            value=None,
            unit="s",
            better=LOWER,
            statistic="median",
            outcome=Outcome.CRASHED,
            message="no round was measured",
            **shared,
        )
        return
    yield from rows_of(stats, _PYTEST_TIMES.get, sample_count=rounds, **shared)
    yield from rows_of(stats, _PYTEST_COUNTS.get, **shared)
    yield from samples_of(stats.get("data"), Meaning("time", "s", LOWER), **shared)
    yield from rows_of(benchmark.get("extra_info") or {}, Meaning, **shared)


# --- Google Benchmark. Source: google/benchmark, src/json_reporter.cc

_GOOGLE_TIMES = ("real_time", "cpu_time")
_GOOGLE_NOT_COUNTERS = frozenset(
    (
        "name",
        "run_name",
        "run_type",
        "family_index",
        "per_family_instance_index",
        "repetitions",
        "repetition_index",
        "threads",
        "aggregate_name",
        "aggregate_unit",
        *_GOOGLE_TIMES,
        "time_unit",
        "big_o",
        "label",
        "error_occurred",
        "error_message",
        "skipped",
        "skip_message",
    )
)
_GOOGLE_COUNTERS = {
    "rms": ("ratio", UNKNOWN),
    "bytes_per_second": ("B/s", HIGHER),
    "items_per_second": ("items/s", HIGHER),
    "max_bytes_used": ("B", LOWER),
    "total_allocated_bytes": ("B", LOWER),
    "net_heap_growth": ("B", LOWER),
    "allocs_per_iter": ("allocations", LOWER),
}
"""Counters that the library itself defines. A user's own has no direction."""
# Less time is better in these statistics; a deviation has no direction.
_CENTRES = frozenset({"mean", "median", "min", "max"})


def _google_benchmark(document: Json, _path: Path) -> ImportedRun:
    context = document.get("context") or {}
    rows: list[ImportedRow] = []
    for benchmark in document["benchmarks"]:
        rows.extend(_google_rows(benchmark))
    return ImportedRun(
        tool="Google Benchmark",
        tool_version=context.get("library_version"),
        rows=tuple(rows),
        commit=ImportedCommit(measured_at=seconds_of(context.get("date"))),
        # a hosted runner has another host name and clock in every run
        device=f"{context['num_cpus']} CPUs" if "num_cpus" in context else None,
    )


def _is_google_benchmark(head: bytes, _name: str) -> bool:
    """Tools that merge or filter results drop `context`; the times of a row remain."""
    has_times = all(f'"{name}"'.encode() in head for name in (*_GOOGLE_TIMES, "time_unit"))
    return b'"benchmarks"' in head and (b'"context"' in head or has_times)


def _google_rows(benchmark: Json) -> Iterator[ImportedRow]:
    case = benchmark.get("run_name") or benchmark["name"]
    is_aggregate = benchmark.get("run_type") == "aggregate"
    statistic = "value"
    if is_aggregate:
        statistic = benchmark.get("aggregate_name") or "aggregate"
    is_centre = not is_aggregate or statistic in _CENTRES
    unit = benchmark.get("time_unit") or "ns"
    is_share = benchmark.get("aggregate_unit") == "percentage"
    if is_share:
        unit = "ratio"
        unit = "ratio"  # a coefficient of variation is written as a fraction
    time_better = LOWER if is_centre else UNKNOWN
    times = {
        key: Meaning(
            metric=key,
            unit=unit,
            better=time_better,
            statistic=statistic,
        )
        for key in _GOOGLE_TIMES
    }
    if benchmark.get("error_occurred") or benchmark.get("skipped"):
        yield from _google_failures(benchmark, case, times)
        return

    def other(key: str) -> Meaning | None:
        if key in _GOOGLE_NOT_COUNTERS:
            return None
        if key == "iterations":
            return Meaning(key, "count", statistic=statistic)
        # A fit of the complexity: its unit is time by the size.
        if key in ("real_coefficient", "cpu_coefficient"):
            order = f"{statistic} {benchmark.get('big_o', '')}".rstrip()
            return Meaning(key, unit, statistic=order)
        counter_unit, better = _GOOGLE_COUNTERS.get(key, ("", UNKNOWN))
        return Meaning(
            metric=key,
            unit="ratio" if is_share else counter_unit,
            better=better if is_centre else UNKNOWN,
            statistic=statistic,
        )

    count = benchmark.get("repetitions" if is_aggregate else "iterations")
    yield from rows_of(benchmark, times.get, case=case, sample_count=count)
    yield from rows_of(benchmark, other, case=case)


def _google_failures(
    benchmark: Json,
    case: str,
    times: Mapping[str, Meaning],
) -> Iterator[ImportedRow]:
    outcome = Outcome.UNSUPPORTED
    # a skipped benchmark is unsupported, one with an error failed
    if benchmark.get("error_occurred"):
        outcome = Outcome.CRASHED
    reason = str(benchmark.get("error_message") or benchmark.get("skip_message") or "") or None
    for meaning in times.values():
        yield ImportedRow(
            case=case,
            value=None,
            outcome=outcome,
            message=reason,
            **meaning._asdict(),
        )


# --- hyperfine. Source: sharkdp/hyperfine, src/benchmark/benchmark_result.rs: times in seconds,
# memory in bytes

_HYPERFINE_TIMES = {
    **{
        name: Meaning(
            metric="time",
            unit="s",
            better=LOWER,
            statistic=name,
        )
        for name in ("mean", "median", "min", "max")
    },
    "stddev": Meaning(
        metric="time",
        unit="s",
        better=UNKNOWN,
        statistic="stddev",
    ),
    **{
        name: Meaning(
            metric=name,
            unit="s",
            better=LOWER,
            statistic="mean",
        )
        for name in ("user", "system")
    },
}
_HYPERFINE_METRICS = (
    "time_wall_clock",
    "time_cpu",
    "time_user",
    "time_system",
    "memory_peak_resident",
)


def _hyperfine(document: Json, _path: Path) -> ImportedRun:
    metadata = document.get("metadata") or {}
    rows: list[ImportedRow] = []
    for result in document["results"]:
        rows.extend(_hyperfine_rows(result))
    return ImportedRun(
        tool="hyperfine",
        tool_version=metadata.get("hyperfine_version"),
        rows=tuple(rows),
        commit=ImportedCommit(measured_at=seconds_of(metadata.get("start_time"))),
    )


def _hyperfine_rows(result: Json) -> Iterator[ImportedRow]:
    measurements = result.get("measurements") or []  # of version 2
    # Version 1 lists the exit codes beside the times.
    codes = result.get("exit_codes") or [run.get("exit_code") for run in measurements]
    failed = [code for code in codes if code != 0]  # null: ended by a signal
    named: dict[str, Any] = {
        "case": result.get("name") or result["command"],
        "parameters": result.get("parameters") or {},
    }
    shared = dict(named)
    if failed:
        message = f"{len(failed)} of {len(codes)} runs ended with exit status {failed[0]}"
        shared |= {"outcome": Outcome.CRASHED, "message": message}
    count = len(numbers_of(result.get("times"))) or None
    yield from rows_of(result, _HYPERFINE_TIMES.get, sample_count=count, **shared)
    yield from samples_of(result.get("times"), Meaning("time", "s", LOWER), **shared)
    yield from samples_of(result.get("memory_usage_byte"), Meaning("memory", "B", LOWER), **shared)
    for run in measurements:
        yield from _hyperfine_run(run, named)
    # A command that could not be started leaves nothing else.
    if not count and not measurements and number_of(result.get("mean")) is None:
        yield ImportedRow(
            metric="time",
            value=None,
            unit="s",
            better=LOWER,
            statistic="mean",
            outcome=Outcome.CRASHED,
            message="no run was measured",
            **named,
        )


def _hyperfine_run(run: Json, named: Mapping[str, Any]) -> Iterator[ImportedRow]:
    code = run.get("exit_code")
    outcome = Outcome.OK if code == 0 else Outcome.CRASHED
    for name, measured in run.items():
        # the other keys are the command and its exit status
        if not isinstance(measured, Mapping):
            continue
        better = LOWER if name in _HYPERFINE_METRICS else UNKNOWN
        meaning = Meaning(name, str(measured.get("unit", "")), better)
        yield from samples_of(
            [measured.get("value")],
            meaning,
            outcome=outcome,
            message=f"exit status {code}",
            **named,
        )


# --- Bencher Metric Format. Source: bencher.dev/docs/reference/bencher-metric-format and its
# built-in measures

_BENCHER_MEASURES = {
    "latency": ("ns", LOWER),
    "throughput": ("ops/s", HIGHER),
    "build-time": ("s", LOWER),
    "file-size": ("B", LOWER),
}


def _is_bencher(head: bytes, _name: str) -> bool:
    """The format has no marks of its own, so its whole shape is looked at."""
    compact = b"".join(head.split())
    return compact.startswith(b'{"') and b'":{"' in compact and b'":{"value":' in compact


def _bencher(document: Json, _path: Path) -> ImportedRun:
    rows: list[ImportedRow] = []
    for case, measures in document.items():
        # A benchmark that printed nothing.
        if not measures:
            rows.append(_without_measure(case))
        for name, measured in measures.items():
            unit, better = _BENCHER_MEASURES.get(name.lower().replace(" ", "-"), ("", UNKNOWN))
            # JSON of other languages has NaN.
            if not math.isfinite(measured["value"]):
                raise ValueError(f"{case} {name}: the value is {measured['value']}")
            meanings = {
                key: Meaning(
                    metric=name,
                    unit=unit,
                    better=better,
                    statistic=key,
                )
                for key in ("value", "lower_value", "upper_value")
            }
            rows += rows_of(measured, meanings.get, case=case)
    return ImportedRun(tool="Bencher", rows=tuple(rows))


def _without_measure(case: str) -> ImportedRow:
    return ImportedRow(
        case=case,
        metric="latency",
        value=None,
        unit="ns",
        better=LOWER,
        outcome=Outcome.CRASHED,
        message="the benchmark has no measure",
    )


PROGRAMS = {
    "pytest-benchmark": JsonImporter(
        _pytest_benchmark, with_words(b'"machine_info"', b'"benchmarks"')
    ),
    "google-benchmark": JsonImporter(_google_benchmark, _is_google_benchmark),
    "hyperfine": JsonImporter(_hyperfine, with_words(b'"results"', b'"command"')),
    "bencher": JsonImporter(_bencher, _is_bencher),
}
