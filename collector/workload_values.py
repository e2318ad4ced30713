"""Values of a workload that follow from its measurements, each with its formula: MFU, memory,
launches, latencies.

Latencies are those of a decode loop with continuous batching (Yu et al., Orca, OSDI 2022) on a
virtual clock: service times are measured, queueing is computed, so that the loop repeats on a noisy
host.
"""

import re
import statistics
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from roofwatch.model.grouping import group_by
from roofwatch.model.machine import CaseResult, Ceiling, Outcome
from roofwatch.model.measurement import CaseRecord, Measurement
from roofwatch.model.metrics import SHARE_OF_STEP, Better
from roofwatch.model.results import CaseProfile, ImportedValue
from roofwatch.spec.workload import WORKLOADS

_DECODE = "llama_decode"
_PREFILL = "transformer_inference"
_MOST_TTFT_MS = 200
_MOST_TPOT_MS = 50
"""Bounds of a good request."""
_PERCENTILES = (50, 90, 99)
_LEAST_SHARE = 0.01
_MOST_LABEL = 200
_FUNCTION = re.compile(r"[\w:$]+(?=[<(#]|$)")
_NOT_A_LABEL = re.compile(r"[<>\x00-\x1f]")


# --- the decode loop


class Request(NamedTuple):
    arrival_ns: int
    prompt_tokens: int
    output_tokens: int


class Served(NamedTuple):
    request: Request
    token_ns: tuple[float, ...]
    """When each output token was ready, on the virtual clock."""

    @property
    def ttft_ns(self) -> float:
        """Time to the first token."""
        return self.token_ns[0] - self.request.arrival_ns

    @property
    def tpot_ns(self) -> float | None:
        """Time per output token, (latency - TTFT) / (N - 1); None for a single token."""
        gaps = len(self.token_ns) - 1
        if gaps:
            return (self.token_ns[-1] - self.token_ns[0]) / gaps
        return None


_GAPS_MS = (
    3,
    41,
    7,
    18,
    2,
    66,
    11,
    29,
    5,
    1,
    90,
    14,
    22,
    37,
    4,
    9,
    51,
    13,
    6,
    33,
    2,
    2,
    78,
    19,
    27,
    8,
    45,
    3,
    16,
    60,
)
_PROMPTS = (512, 96, 1024, 64, 256, 128, 768, 32, 384, 160)
_OUTPUTS = (64, 24, 8, 96, 40, 16, 128)
ARRIVALS = tuple(
    Request(
        arrival_ns=arrival_ms * 1_000_000,
        prompt_tokens=_PROMPTS[number % len(_PROMPTS)],
        output_tokens=_OUTPUTS[number % len(_OUTPUTS)],
    )
    for number, arrival_ms in enumerate(accumulate(_GAPS_MS))
)
"""The stored requests: 30 in 0.8 s, in bursts, with prompts of 32 to 1024 tokens and outputs of 8
to 128.
"""


def serve(
    requests: Sequence[Request],
    *,
    prefill_ns_per_token: float,
    step_ns: Callable[[int], float],
    most_sequences: int,
) -> list[Served]:
    """Serve requests in the order of their arrival with continuous batching.

    A waiting request joins before the next step if there is room; its prompt runs alone and gives
    its first token. Then a step gives one token to every running sequence. `step_ns` is the time of
    a step by the number of sequences.
    """
    waiting = deque(requests)
    running = list[tuple[Request, list[float]]]()
    served = list[Served]()
    now_ns = 0.0
    while waiting or running:
        if not running:
            now_ns = max(now_ns, waiting[0].arrival_ns)
        while waiting and waiting[0].arrival_ns <= now_ns and len(running) < most_sequences:
            request = waiting.popleft()
            now_ns += prefill_ns_per_token * request.prompt_tokens
            running.append((request, [now_ns]))
        unfinished = [
            (request, tokens) for request, tokens in running if not _is_done(request, tokens)
        ]
        if unfinished:
            now_ns += step_ns(len(unfinished))
            for _, tokens in unfinished:
                tokens.append(now_ns)
        served += [
            Served(request, tuple(tokens))
            for request, tokens in running
            if _is_done(request, tokens)
        ]
        running = [
            (request, tokens) for request, tokens in unfinished if not _is_done(request, tokens)
        ]
    return served


def _is_done(request: Request, token_ns: Sequence[float]) -> bool:
    return len(token_ns) >= request.output_tokens


# --- the values


def workload_values(
    cases: Iterable[CaseRecord],
    measurements: Iterable[Measurement],
    profiles: Iterable[CaseProfile],
    ceilings: Sequence[Ceiling],
) -> Iterator[ImportedValue]:
    """Derive the values of all workloads of a run.

    Values that only follow the time have no direction, so that one slowdown is judged once.
    """
    by_id = {case.case_id: case for case in cases if case.family == WORKLOADS}
    of_calls = {profile.case_key: profile for profile in profiles}
    measured = [
        measurement
        for measurement in measurements
        if measurement.case_id in by_id and measurement.outcome is Outcome.OK
    ]
    for measurement in measured:
        yield from _of_step(
            case=by_id[measurement.case_id],
            measured=measurement,
            profile=of_calls.get(measurement.case_key),
            ceilings=ceilings,
        )
    yield from _of_loops(by_id, measured)


def _of_step(
    case: CaseRecord,
    measured: Measurement,
    profile: CaseProfile | None,
    ceilings: Sequence[Ceiling],
) -> Iterator[ImportedValue]:
    """Utilisations, memory, busy share and launches of one step."""
    value = _values_of(measured)
    peak = _datasheet_peak(ceilings, case.dtype)
    if peak is not None and (median_ns := measured.median_ns):
        executed = None
        if profile is not None:
            executed = profile.flop_count
        rate = f"{peak.per_s:.6g} FLOP/s of {case.dtype} ({peak.method})"
        per_peak = f"{median_ns:.6g} ns / {rate}"
        for metric, flop_count, counter in (
            ("MFU", case.flop_count, "of the model"),
            ("HFU", executed, "executed, counted by torch.utils.flop_counter"),
        ):
            if flop_count:
                flop_per_s = flop_count / median_ns * 1e9
                yield value(
                    metric=metric,
                    unit="share",
                    value=flop_per_s / peak.per_s,
                    message=f"{flop_count:.6g} FLOP {counter} / {per_peak}",
                )
    if (memory := measured.memory) is not None:
        yield value(
            metric="peak reserved memory",
            unit="bytes",
            value=float(memory.peak_reserved_bytes),
            message="maximum of torch's allocator",
            better=Better.LOWER,
        )
        if memory.fragmentation is not None:
            formula = "inactive split bytes / reserved bytes"
            yield value(
                metric="fragmentation",
                unit="share",
                value=memory.fragmentation,
                message=formula,
            )
    if profile is not None and profile.span_ns:
        formula = (
            f"{profile.busy_ns} ns busy / {profile.span_ns} ns of {profile.call_count} "
            f"profiled calls"
        )
        yield value(
            metric="busy share",
            unit="share",
            value=profile.busy_ns / profile.span_ns,
            message=formula,
        )
        yield from shares_of_step(profile)
    counts = [block.kernel_count for block in measured.blocks if block.kernel_count is not None]
    if counts:
        yield value(
            metric="launches per step",
            unit="launches",
            value=float(max(counts)),
            message="most kernels, copies and fills of a timed step",
            better=Better.LOWER,
        )


def shares_of_step(profile: CaseProfile) -> Iterator[ImportedValue]:
    """Share of each function with 1 % or more of the profiled calls: median and quartiles over the
    calls.
    """
    # reports need the names of functions, and no numpy
    import numpy as np

    value = _values_of(
        profile,
        better=Better.LOWER,
        unit="share",
        sample_count=profile.call_count,
    )
    lasting_rows = [row for row in profile.rows if row.has_lasting_name]
    functions = group_by(lasting_rows, key=lambda row: function_name(row.name))
    calls_ns = np.sum([row.call_ns for row in profile.rows], axis=0)
    for name, rows in functions.items():
        total_ns = sum(row.total_ns for row in rows)
        if total_ns < _LEAST_SHARE * profile.span_ns:
            continue
        low = None
        share = total_ns / profile.span_ns
        high = None
        # a call that took longer as a whole has the same shares
        if calls_ns.size and calls_ns.all():
            rows_ns = np.sum([row.call_ns for row in rows], axis=0)
            quartiles = np.quantile(rows_ns / calls_ns, (0.25, 0.5, 0.75))
            # calls are a part of the profiled span
            low, share, high = quartiles * calls_ns.sum() / profile.span_ns
        formula = (
            f"median of {profile.call_count} profiled calls, in all {total_ns} ns / "
            f"{profile.span_ns} ns"
        )
        yield value(
            metric=SHARE_OF_STEP + name,
            value=share,
            low=low,
            high=high,
            message=formula,
        )


def _datasheet_peak(ceilings: Sequence[Ceiling], dtype: str) -> Ceiling | None:
    """Peak rate of a dtype by the datasheet of the device."""
    for ceiling in ceilings:
        if ceiling.source != "datasheet" or ceiling.resource != "compute":
            continue
        if ceiling.dtype == dtype:
            return ceiling
    return None


def function_name(name: str) -> str:
    """A function without its result, template arguments, parameters and number."""
    match = _FUNCTION.search(name)
    if match is None:
        return _NOT_A_LABEL.sub(" ", name)[:_MOST_LABEL]
    return match[0].lstrip(":")[:_MOST_LABEL]


def _of_loops(
    cases: Mapping[str, CaseRecord], measured: Iterable[Measurement]
) -> Iterator[ImportedValue]:
    """Latencies of the stored requests, for each block and implementation with times of decoding
    and of a prompt.
    """
    times: defaultdict[tuple[object, ...], dict[int, Measurement]] = defaultdict(dict)
    prompts: dict[tuple[object, ...], float] = {}
    for measurement in measured:
        case = cases[measurement.case_id]
        sizes = (case.shape.get(name) for name in ("hidden", "ffn", "H", "H_KV", "D"))
        block: tuple[object, ...] = (measurement.implementation, case.dtype, *sizes)
        if measurement.median_ns is None:
            continue
        if case.kernel == _DECODE:
            batch_size = int(case.shape["B"])
            times[block][batch_size] = measurement
        elif case.kernel == _PREFILL and case.token_count:
            prompts[block] = measurement.median_ns / case.token_count
    for block, by_count in times.items():
        largest = by_count[max(by_count)]
        most_tokens = int(cases[largest.case_id].shape["T"])
        fitting = [
            request
            for request in ARRIVALS
            if request.prompt_tokens + request.output_tokens <= most_tokens
        ]
        if block in prompts and len(fitting) > 1:

            def step_ns(count: int, by_count: dict[int, Measurement] = by_count) -> float:
                return (
                    by_count[
                        min(
                            measured_count for measured_count in by_count if measured_count >= count
                        )
                    ].median_ns
                    or 0.0
                )

            served = serve(
                fitting,
                prefill_ns_per_token=prompts[block],
                step_ns=step_ns,
                most_sequences=max(by_count),
            )
            yield from _latencies(largest, served)
            yield _values_of(largest)(
                metric="failed requests",
                unit="requests",
                value=float(len(ARRIVALS) - len(served)),
                message=f"of {len(ARRIVALS)}, with a longer prompt and output than the measured "
                f"{most_tokens} tokens",
                better=Better.LOWER,
            )


def _latencies(measured: Measurement, served: Sequence[Served]) -> Iterator[ImportedValue]:
    """Latencies and rates of served requests, from their times on a virtual clock."""
    value = _values_of(measured, better=Better.LOWER)
    clock = f"of {len(served)} stored requests on a virtual clock"
    ttfts_ns = [request.ttft_ns for request in served]
    tpots_ns = [request.tpot_ns for request in served if request.tpot_ns is not None]
    gaps_ns: list[float] = []
    for request in served:
        gaps_ns += [after - before for before, after in pairwise(request.token_ns)]
    for metric, values_ns, formula in (
        ("TTFT", ttfts_ns, f"first token - arrival, {clock}"),
        ("ITL", gaps_ns, f"each gap between two tokens of a request, {clock}"),
        ("TPOT", tpots_ns, f"(latency - TTFT) / (N - 1), {clock}"),
    ):
        cuts = statistics.quantiles(
            [ns / 1e6 for ns in values_ns],
            n=100,
            method="inclusive",
        )
        for percentile in _PERCENTILES:
            yield value(
                metric=metric,
                statistic=f"p{percentile}",
                unit="ms",
                value=cuts[percentile - 1],
                message=formula,
            )
    end_ns = max(request.token_ns[-1] for request in served) - min(
        request.request.arrival_ns for request in served
    )
    good = sum(
        request.ttft_ns <= _MOST_TTFT_MS * 1e6 and (request.tpot_ns or 0.0) <= _MOST_TPOT_MS * 1e6
        for request in served
    )
    tokens = sum(len(request.token_ns) for request in served)
    bound = f"TTFT to {_MOST_TTFT_MS} ms, TPOT to {_MOST_TPOT_MS} ms"
    for metric, statistic, count, noun in (
        ("goodput", bound, good, "requests"),
        ("served tokens", "value", tokens, "tokens"),
    ):
        yield value(
            metric=metric,
            statistic=statistic,
            unit=f"{noun}/s",
            value=count / end_ns * 1e9,
            message=f"{count} {noun} / {end_ns:.6g} ns",
            better=Better.HIGHER,
        )


def _values_of(result: CaseResult, **shared: Any) -> Callable[..., ImportedValue]:
    """Return what makes values of one case and implementation."""
    default = {
        "statistic": "value",
        "better": Better.UNKNOWN,
        "outcome": Outcome.OK,
        **shared,
    }
    return partial(
        ImportedValue,
        case_id=result.case_id,
        implementation=result.implementation,
        **default,
    )
