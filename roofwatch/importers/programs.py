"""Benchmarks of programs and functions: pytest-benchmark, Google Benchmark, hyperfine, Bencher Metric Format."""

import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from roofwatch.collector.record.machine import Outcome
from roofwatch.importers import (
    HIGHER,
    LOWER,
    UNKNOWN,
    ImportedCommit,
    ImportedRow,
    ImportedRun,
    Json,
    JsonImporter,
    number_of,
    numbers_of,
)


def _seconds(text: object) -> float | None:
    """A date in ISO 8601 as seconds since 1970; without a zone, in UTC."""
    try:
        time = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


# --- pytest-benchmark. Source: pytest_benchmark/stats.py: all times in seconds, `ops` is 1 / mean

_PYTEST_TIMES = ("min", "max", "mean", "median", "q1", "q3", "ld15iqr", "hd15iqr")
_PYTEST_SPREADS = ("stddev", "iqr", "total")  # the total depends on the number of rounds
_PYTEST_COUNTS = ("rounds", "iterations", "iqr_outliers", "stddev_outliers")


def _pytest_benchmark(document: Json, _path: Path) -> ImportedRun:
    info = document.get("commit_info") or {}
    sha = info.get("id")
    cpu = (document.get("machine_info") or {}).get("cpu") or {}
    return ImportedRun(
        tool="pytest-benchmark",
        tool_version=document.get("version"),
        rows=tuple(row for benchmark in document["benchmarks"] for row in _pytest_rows(benchmark)),
        commit=ImportedCommit(
            sha=None if sha in (None, "unversioned", "unknown") else sha,
            committed_at=_seconds(info.get("time")),
            measured_at=_seconds(document.get("datetime")),
            branch=info.get("branch") if info.get("branch") not in ("(unknown)", "(detached head)") else None,
            is_dirty=bool(info.get("dirty")),
        ),
        project=info.get("project"),
        device=cpu.get("brand_raw") or cpu.get("brand"),
    )


def _pytest_rows(benchmark: Json) -> Iterator[ImportedRow]:
    stats, case, parameters = benchmark["stats"], benchmark["fullname"], benchmark.get("params") or {}
    rounds = stats.get("rounds")

    def row(metric: str, value: object, unit: str, statistic: str = "value", **more: Any) -> ImportedRow:
        return ImportedRow(case, metric, number_of(value), unit, statistic=statistic, parameters=parameters, **more)

    if not rounds:
        yield row("time", None, "s", "median", better=LOWER, outcome=Outcome.CRASHED, message="no round was measured")
        return
    for name in (*_PYTEST_TIMES, *_PYTEST_SPREADS):
        if number_of(stats.get(name)) is not None:
            better = LOWER if name in _PYTEST_TIMES else UNKNOWN
            yield row("time", stats[name], "s", name, better=better, sample_count=rounds)
    if number_of(stats.get("ops")) is not None:
        yield row("ops", stats["ops"], "1/s", "mean", better=HIGHER, sample_count=rounds)
    for name in _PYTEST_COUNTS:
        if number_of(stats.get(name)) is not None:
            yield row(name, stats[name], "count")
    for sample in numbers_of(stats.get("data")):
        yield row("time", sample, "s", "sample", better=LOWER, sample_count=1)
    for name, value in (benchmark.get("extra_info") or {}).items():
        if not isinstance(value, str) and number_of(value) is not None:
            yield row(name, value, "")


# --- Google Benchmark. Source: google/benchmark, src/json_reporter.cc

_GOOGLE_KNOWN = frozenset(
    (
        *("name", "run_name", "run_type", "family_index", "per_family_instance_index", "repetitions"),
        *("repetition_index", "threads", "aggregate_name", "aggregate_unit", "iterations", "real_time"),
        *("cpu_time", "time_unit", "cpu_coefficient", "real_coefficient", "big_o", "rms", "label"),
        *("error_occurred", "error_message", "skipped", "skip_message"),
    )
)
_GOOGLE_COUNTERS = {
    "bytes_per_second": ("B/s", HIGHER),
    "items_per_second": ("items/s", HIGHER),
    "max_bytes_used": ("B", LOWER),
    "total_allocated_bytes": ("B", LOWER),
    "net_heap_growth": ("B", LOWER),
    "allocs_per_iter": ("allocations", LOWER),
}
"""Counters that the library itself defines. A user's own has no direction."""
_CENTRES = frozenset({"mean", "median", "min", "max"})


def _google_benchmark(document: Json, _path: Path) -> ImportedRun:
    context = document["context"]
    return ImportedRun(
        tool="Google Benchmark",
        tool_version=context.get("library_version"),
        rows=tuple(row for benchmark in document["benchmarks"] for row in _google_rows(benchmark)),
        commit=ImportedCommit(measured_at=_seconds(context.get("date"))),
        # a hosted runner has another host name and clock in every run
        device=f"{context['num_cpus']} CPUs" if "num_cpus" in context else None,
    )


def _google_rows(benchmark: Json) -> Iterator[ImportedRow]:
    name, unit = benchmark.get("run_name") or benchmark["name"], benchmark.get("time_unit") or "ns"
    is_aggregate = benchmark.get("run_type") == "aggregate"
    statistic = benchmark.get("aggregate_name") or "aggregate" if is_aggregate else "value"
    is_centre = not is_aggregate or statistic in _CENTRES
    if benchmark.get("aggregate_unit") == "percentage":
        unit = "ratio"  # a coefficient of variation is written as a fraction
    if benchmark.get("error_occurred") or benchmark.get("skipped"):
        failure = Outcome.CRASHED if benchmark.get("error_occurred") else Outcome.UNSUPPORTED
        reason = str(benchmark.get("error_message") or benchmark.get("skip_message") or "")
    else:
        failure, reason = Outcome.OK, ""
    count = benchmark.get("iterations") if not is_aggregate else benchmark.get("repetitions")

    shared: dict[str, Any] = {"statistic": statistic, "outcome": failure, "message": reason or None}

    def row(metric: str, value: object, unit: str, **more: Any) -> ImportedRow:
        return ImportedRow(name, metric, number_of(value), unit, **shared | more)

    for key in ("real_time", "cpu_time"):
        if key in benchmark or failure is not Outcome.OK:
            yield row(key, benchmark.get(key), unit, better=LOWER if is_centre else UNKNOWN, sample_count=count)
    for key in ("real_coefficient", "cpu_coefficient"):
        if key in benchmark:
            yield row(key, benchmark[key], unit, statistic=f"{statistic} {benchmark.get('big_o', '')}".rstrip())
    if "rms" in benchmark:
        yield row("rms", benchmark["rms"], "ratio")
    if number_of(benchmark.get("iterations")) is not None:
        yield row("iterations", benchmark["iterations"], "count")
    for key, value in benchmark.items():
        if key not in _GOOGLE_KNOWN and not isinstance(value, str) and number_of(value) is not None:
            own_unit, better = _GOOGLE_COUNTERS.get(key, ("", UNKNOWN))
            is_share = benchmark.get("aggregate_unit") == "percentage"
            yield row(key, value, "ratio" if is_share else own_unit, better=better if is_centre else UNKNOWN)


# --- hyperfine. Source: sharkdp/hyperfine, src/benchmark/benchmark_result.rs: times in seconds, memory in bytes

_HYPERFINE_TIMES = ("mean", "median", "min", "max")
_HYPERFINE_METRICS = ("time_wall_clock", "time_cpu", "time_user", "time_system", "memory_peak_resident")


def _hyperfine(document: Json, _path: Path) -> ImportedRun:
    metadata = document.get("metadata") or {}
    return ImportedRun(
        tool="hyperfine",
        tool_version=metadata.get("hyperfine_version"),
        rows=tuple(row for result in document["results"] for row in _hyperfine_rows(result)),
        commit=ImportedCommit(measured_at=_seconds(metadata.get("start_time"))),
    )


def _hyperfine_rows(result: Json) -> Iterator[ImportedRow]:
    case, parameters = result.get("name") or result["command"], result.get("parameters") or {}
    measurements = result.get("measurements") or []  # of version 2
    codes = result.get("exit_codes") or [one.get("exit_code") for one in measurements]
    failed = [code for code in codes if code != 0]  # null: ended by a signal
    outcome = Outcome.CRASHED if failed else Outcome.OK
    message = f"{len(failed)} of {len(codes)} runs ended with exit status {failed[0]}" if failed else None

    def row(metric: str, value: object, unit: str, statistic: str, **more: Any) -> ImportedRow:
        found: dict[str, Any] = {"parameters": parameters, "outcome": outcome, "message": message} | more
        return ImportedRow(case, metric, number_of(value), unit, statistic=statistic, **found)

    times = numbers_of(result.get("times"))
    count = len(times) or None
    for name in (*_HYPERFINE_TIMES, "stddev"):
        if number_of(result.get(name)) is not None:
            better = UNKNOWN if name == "stddev" else LOWER
            yield row("time", result[name], "s", name, better=better, sample_count=count)
    for name in ("user", "system"):
        if number_of(result.get(name)) is not None:
            yield row(name, result[name], "s", "mean", better=LOWER, sample_count=count)
    for sample in times:
        yield row("time", sample, "s", "sample", better=LOWER, sample_count=1)
    for sample in numbers_of(result.get("memory_usage_byte")):
        yield row("memory", sample, "B", "sample", better=LOWER, sample_count=1)
    for one in measurements:
        code = one.get("exit_code")
        ended = {"outcome": Outcome.OK if code == 0 else Outcome.CRASHED, "message": f"exit status {code}"}
        for name, measured in one.items():
            if isinstance(measured, Mapping) and number_of(measured.get("value")) is not None:
                better = LOWER if name in _HYPERFINE_METRICS else UNKNOWN
                unit = str(measured.get("unit", ""))
                yield row(name, measured["value"], unit, "sample", better=better, sample_count=1, **ended)
    if not count and not measurements and number_of(result.get("mean")) is None:
        yield row("time", None, "s", "mean", better=LOWER, outcome=Outcome.CRASHED, message="no run was measured")


# --- Bencher Metric Format. Source: bencher.dev/docs/reference/bencher-metric-format and its built-in measures

_BENCHER_MEASURES = {
    "latency": ("ns", LOWER),
    "throughput": ("ops/s", HIGHER),
    "build-time": ("s", LOWER),
    "file-size": ("B", LOWER),
}


class _Bencher(JsonImporter):
    """The format has no marks of its own, so its whole shape is looked at."""

    def sniff(self, head: bytes, _name: str, /) -> float:
        compact = b"".join(head.split())
        return 0.5 if compact.startswith(b'{"') and b'":{"' in compact and b'":{"value":' in compact else 0.0


def _bencher(document: Json, _path: Path) -> ImportedRun:
    rows = []
    for case, measures in document.items():
        if not measures:
            message = "the benchmark has no measure"
            rows.append(ImportedRow(case, "latency", None, "ns", LOWER, outcome=Outcome.CRASHED, message=message))
        for name, measured in measures.items():
            unit, better = _BENCHER_MEASURES.get(name.lower().replace(" ", "-"), ("", UNKNOWN))
            if not math.isfinite(measured["value"]):
                raise ValueError(f"{case} {name}: the value is {measured['value']}")
            rows += [
                ImportedRow(case, name, float(measured[key]), unit, better, statistic=key)
                for key in ("value", "lower_value", "upper_value")
                if measured.get(key) is not None
            ]
    return ImportedRun(tool="Bencher", rows=tuple(rows))


PROGRAMS = {
    "pytest-benchmark": JsonImporter(_pytest_benchmark, (b'"machine_info"', b'"benchmarks"')),
    "google-benchmark": JsonImporter(_google_benchmark, (b'"context"', b'"benchmarks"')),
    "hyperfine": JsonImporter(_hyperfine, (b'"results"', b'"command"')),
    "bencher": _Bencher(_bencher, ()),
}
