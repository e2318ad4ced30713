"""Values of a workload that follow from its measurements, each with its formula: MFU, memory, launches, latencies.

Latencies are those of a decode loop with continuous batching (Yu et al., Orca, OSDI 2022) on a virtual clock: service
times are measured, queueing is computed, so that the loop repeats on a noisy host.
"""

import re
import statistics
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from roofwatch.collector.record.machine import Ceiling, Outcome
from roofwatch.collector.record.measurement import CaseRecord, Measurement
from roofwatch.collector.record.metrics import SHARE_OF_STEP, Better
from roofwatch.collector.record.results import CaseProfile, ImportedValue

WORKLOADS = "workloads"
"""Family of all workloads."""
_DECODE, _PREFILL = "llama_decode", "transformer_inference"
_MOST_TTFT_MS, _MOST_TPOT_MS = 200, 50
"""Bounds of a good request."""
_PERCENTILES = (50, 90, 99)
_LEAST_SHARE = 0.01
_MOST_LABEL = 200
_OPERATOR = re.compile(r"\w+::\w+")
"""Torch's own operators. Regions and graphs of torch.compile are numbered, and differ in every run."""
_FUNCTION = re.compile(r"[\w:$]+(?=[<(]|$)")
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
        return (self.token_ns[-1] - self.token_ns[0]) / gaps if gaps else None


_GAPS_MS = (3, 41, 7, 18, 2, 66, 11, 29, 5, 1, 90, 14, 22, 37, 4, 9, 51, 13, 6, 33, 2, 2, 78, 19, 27, 8, 45, 3, 16, 60)
_PROMPTS = (512, 96, 1024, 64, 256, 128, 768, 32, 384, 160)
_OUTPUTS = (64, 24, 8, 96, 40, 16, 128)
ARRIVALS = tuple(
    Request(sum(_GAPS_MS[: at + 1]) * 1_000_000, _PROMPTS[at % len(_PROMPTS)], _OUTPUTS[at % len(_OUTPUTS)])
    for at in range(len(_GAPS_MS))
)
"""The stored requests: 30 in 0.8 s, in bursts, with prompts of 32 to 1024 tokens and outputs of 8 to 128."""


def serve(
    requests: Sequence[Request],
    *,
    prefill_ns_per_token: float,
    step_ns: Callable[[int], float],
    most_sequences: int,
) -> list[Served]:
    """Serve requests in the order of their arrival with continuous batching.

    A waiting request joins before the next step if there is room; its prompt runs alone and gives its first token. Then
    a step gives one token to every running sequence.

    Args:
        requests: In the order of their arrival.
        prefill_ns_per_token: Measured time of a prompt per token.
        step_ns: Measured time of a step with a number of sequences.
        most_sequences: Sequences that run at the same time.
    """
    waiting, running, served = deque(requests), list[tuple[Request, list[float]]](), list[Served]()
    now_ns = 0.0
    while waiting or running:
        if not running:
            now_ns = max(now_ns, waiting[0].arrival_ns)
        while waiting and waiting[0].arrival_ns <= now_ns and len(running) < most_sequences:
            request = waiting.popleft()
            now_ns += prefill_ns_per_token * request.prompt_tokens
            running.append((request, [now_ns]))
        unfinished = [each for each in running if len(each[1]) < each[0].output_tokens]
        if unfinished:
            now_ns += step_ns(len(unfinished))
            for _, tokens in unfinished:
                tokens.append(now_ns)
        served += [Served(one, tuple(tokens)) for one, tokens in running if len(tokens) >= one.output_tokens]
        running = [each for each in unfinished if len(each[1]) < each[0].output_tokens]
    return served


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
    if profile is not None and profile.span_ns:
        formula = f"{profile.busy_ns} ns busy / {profile.span_ns} ns of {profile.call_count} profiled calls"
        yield value("busy share", "share", profile.busy_ns / profile.span_ns, formula)
        for name, total_ns in function_times_ns(profile).items():
            if total_ns >= _LEAST_SHARE * profile.span_ns:
                formula = f"{total_ns} ns / {profile.span_ns} ns of {profile.call_count} profiled calls"
                yield value(SHARE_OF_STEP + name, "share", total_ns / profile.span_ns, formula, Better.LOWER)
    counts = [block.kernel_count for block in measured.blocks if block.kernel_count is not None]
    if counts:
        formula = "most kernels, copies and fills of a timed step"
        yield value("launches per step", "launches", float(max(counts)), formula, Better.LOWER)


def function_times_ns(profile: CaseProfile) -> Counter[str]:
    """Total time of each function in all profiled calls."""
    total_ns: Counter[str] = Counter()
    for row in profile.rows:
        if row.kind != "operator" or _OPERATOR.fullmatch(row.name):
            total_ns[function_name(row.name)] += row.total_ns
    return total_ns


def function_name(name: str) -> str:
    """A function of a profile without its result, template arguments and parameters."""
    found = _FUNCTION.search(name)
    return _NOT_A_LABEL.sub(" ", name)[:_MOST_LABEL] if found is None else found[0].lstrip(":")[:_MOST_LABEL]


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
