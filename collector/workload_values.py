"""Values of a workload that follow from its measurements, each with its formula: MFU, memory, launches, latencies."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from roofwatch.collector.decode_loop import ARRIVALS, Served, serve
from roofwatch.collector.record.machine import Ceiling, Outcome
from roofwatch.collector.record.measurement import CaseRecord, Measurement
from roofwatch.collector.record.metrics import Better
from roofwatch.collector.record.results import CaseProfile, ImportedValue

_FAMILY = "workloads"
_DECODE, _PREFILL = "llama_decode", "transformer_inference"
_MOST_TTFT_MS, _MOST_TPOT_MS = 200, 50
"""Bounds of a good request."""
_PERCENTILES = (50, 90, 99)


def workload_values(
    cases: Iterable[CaseRecord],
    measurements: Iterable[Measurement],
    profiles: Iterable[CaseProfile],
    ceilings: Sequence[Ceiling],
) -> Iterator[ImportedValue]:
    """Derive the values of all workloads of a run.

    Values that only follow the time have no direction, so that one slowdown is judged once.
    """
    by_id = {case.case_id: case for case in cases if case.family == _FAMILY}
    of_calls = {(profile.case_id, profile.implementation): profile for profile in profiles}
    measured = [one for one in measurements if one.case_id in by_id and one.outcome is Outcome.OK]
    for one in measured:
        yield from _of_step(by_id[one.case_id], one, of_calls.get((one.case_id, one.implementation)), ceilings)
    yield from _of_loops(by_id, measured)


def _of_step(
    case: CaseRecord, measured: Measurement, profile: CaseProfile | None, ceilings: Sequence[Ceiling]
) -> Iterator[ImportedValue]:
    def value(metric: str, unit: str, number: float, formula: str, better: Better = Better.UNKNOWN) -> ImportedValue:
        return _value(case.case_id, measured.implementation, metric, "value", unit, number, formula, better)

    peak = next(
        (each for each in ceilings if (each.source, each.resource, each.dtype) == ("datasheet", "compute", case.dtype)),
        None,
    )
    median_ns = measured.median_ns or 0.0
    if peak is not None and median_ns:
        formula = f"{case.flop_count:.6g} FLOP / {median_ns:.6g} ns / {peak.per_s:.6g} FLOP/s ({peak.method})"
        yield value("MFU", "share", case.flop_count / median_ns * 1e9 / peak.per_s, formula)
    if (memory := measured.memory) is not None:
        reserved = float(memory.peak_reserved_bytes)
        yield value("peak reserved memory", "bytes", reserved, "maximum of torch's allocator", Better.LOWER)
        if memory.fragmentation is not None:
            yield value("fragmentation", "share", memory.fragmentation, "inactive split bytes / reserved bytes")
    if profile is None:
        return
    if profile.span_ns:
        formula = f"{profile.busy_ns} ns busy / {profile.span_ns} ns of {profile.call_count} profiled calls"
        yield value("busy share", "share", profile.busy_ns / profile.span_ns, formula)
    if not profile.left_out_count:
        count = sum(row.count for row in profile.rows)
        what = "operators" if any(row.kind == "operator" for row in profile.rows) else "launches"
        formula = f"{count} {what} / {profile.call_count} profiled calls"
        yield value(f"{what} per step", what, count / profile.call_count, formula, Better.LOWER)


def _of_loops(cases: dict[str, CaseRecord], measured: Iterable[Measurement]) -> Iterator[ImportedValue]:
    """Latencies of the stored requests, for each block and implementation with times of decoding and of a prompt."""
    times: defaultdict[tuple[object, ...], dict[int, tuple[str, float]]] = defaultdict(dict)
    prompts: dict[tuple[object, ...], float] = {}
    for one in measured:
        case = cases[one.case_id]
        block: tuple[object, ...] = (
            one.implementation,
            case.dtype,
            *(case.shape.get(name) for name in ("hidden", "ffn", "H", "H_KV", "D")),
        )
        if case.kernel == _DECODE and one.median_ns is not None:
            times[block][int(case.shape["B"])] = case.case_id, one.median_ns
        elif case.kernel == _PREFILL and one.median_ns is not None and case.token_count:
            prompts[block] = one.median_ns / case.token_count
    for block, by_count in times.items():
        if block in prompts:
            most = max(by_count)

            def step_ns(count: int, by_count: dict[int, tuple[str, float]] = by_count) -> float:
                return by_count[min(known for known in by_count if known >= count)][1]

            served = serve(ARRIVALS, prefill_ns_per_token=prompts[block], step_ns=step_ns, most_sequences=most)
            yield from _latencies(by_count[most][0], str(block[0]), served)


def _latencies(case_id: str, implementation: str, served: Sequence[Served]) -> Iterator[ImportedValue]:
    def value(metric: str, statistic: str, unit: str, number: float, formula: str, better: Better) -> ImportedValue:
        return _value(case_id, implementation, metric, statistic, unit, number, formula, better)

    clock = f"of {len(served)} stored requests on a virtual clock"
    tpots_ns = [one.tpot_ns for one in served if one.tpot_ns is not None]
    gaps_ns = [after - before for one in served for before, after in zip(one.token_ns, one.token_ns[1:], strict=False)]
    for metric, values_ns, formula in (
        ("TTFT", [one.ttft_ns for one in served], f"first token - arrival, {clock}"),
        ("ITL", gaps_ns, f"each gap between two tokens of a request, {clock}"),
        ("TPOT", tpots_ns, f"(latency - TTFT) / (N - 1), {clock}"),
    ):
        cuts = statistics.quantiles(values_ns, n=100, method="inclusive")
        for percent in _PERCENTILES:
            yield value(metric, f"p{percent}", "ms", cuts[percent - 1] / 1e6, formula, Better.LOWER)
    end_ns = max(one.token_ns[-1] for one in served) - min(one.request.arrival_ns for one in served)
    good = sum(one.ttft_ns <= _MOST_TTFT_MS * 1e6 and (one.tpot_ns or 0.0) <= _MOST_TPOT_MS * 1e6 for one in served)
    bound = f"TTFT to {_MOST_TTFT_MS} ms, TPOT to {_MOST_TPOT_MS} ms"
    rate = good / end_ns * 1e9
    yield value("goodput", bound, "requests/s", rate, f"{good} good requests / {end_ns:.6g} ns", Better.HIGHER)
    tokens = sum(len(one.token_ns) for one in served)
    yield value(
        "served tokens", "value", "tokens/s", tokens / end_ns * 1e9, f"{tokens} tokens / {end_ns:.6g} ns", Better.HIGHER
    )


def _value(
    case_id: str,
    implementation: str,
    metric: str,
    statistic: str,
    unit: str,
    value: float,
    formula: str,
    better: Better,
) -> ImportedValue:
    return ImportedValue(
        case_id=case_id,
        implementation=implementation,
        metric=metric,
        statistic=statistic,
        unit=unit,
        better=better,
        outcome=Outcome.OK,
        message=formula,
        value=value,
    )
