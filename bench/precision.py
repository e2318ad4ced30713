"""How long harnesses take to know a median to one percent: ours, torch.utils.benchmark and pytest-benchmark.

    make bench-precision

The same calls, on one thread of the CPU, in one process and in turn. A harness has reached its end once the
distribution-free 95 % interval of the median of what it measured is at most 1 % to either side. Ours stops there by
itself. The others stop by rules of their own, so they are asked again with twice the time until theirs is there too;
all the asking counts, and so does what each does before and between its samples.

Whether one percent was reached in truth shows between the rounds: a cell ends with their median, and how far their
medians lie apart. That of one harness beside that of another is a check of how each takes its times.
"""

from __future__ import annotations

import contextlib
import gc
import io
import random
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import torch
from torch.utils.benchmark import Timer

from roofwatch.collector.record.metrics import format_ns
from roofwatch.collector.timing.method import SamplingPlan
from roofwatch.collector.timing.timing import relative_width_of_median, sample_launches

ENOUGH = 0.02
"""Width of the interval relative to the median: 1 % to either side."""
LIMIT_S = 4.0
"""Who is not there by then is counted as that."""
ROUNDS = 3

Launch = Callable[[], object]
_PYTEST_FILE = """
from bench.precision import taking
def test_case(benchmark):
    taking(benchmark)
"""


@dataclass(frozen=True)
class Reached:
    """What one asking came to."""

    seconds: float
    samples: int
    width: float
    median_ns: float


def ours(launch: Launch, seconds: float) -> Reached:
    """`roofwatch.collector.timing.timing`, with its usual warm-up."""
    plan = SamplingPlan(warmup_ms=20, budget_ms=1e3 * seconds, max_samples=10**6, relative_width=ENOUGH)
    began = perf_counter()
    taken = sample_launches(launch, plan)
    return _reached(perf_counter() - began, list(taken.samples_ns))


def torch_benchmark(launch: Launch, seconds: float) -> Reached:
    """`adaptive_autorange`, whose rule is the quartiles' distance; given the least time that it shall take."""
    timer = Timer("launch()", globals={"launch": launch}, num_threads=1)
    began = perf_counter()
    taken = timer.adaptive_autorange(min_run_time=seconds, max_run_time=LIMIT_S)
    return _reached(perf_counter() - began, [1e9 * seconds for seconds in taken.times])


def pytest_benchmark(launch: Launch, seconds: float) -> Reached:
    """Its fixture, inside a real test; starting pytest does not count."""
    import pytest

    results: list[Reached] = []

    def take(benchmark: object) -> None:
        began = perf_counter()
        benchmark(launch)  # type: ignore[operator]  # the fixture, which has no types
        spent = perf_counter() - began
        results.append(_reached(spent, [1e9 * taken for taken in benchmark.stats.stats.data]))  # type: ignore[attr-defined]

    _TAKING[:] = [take]
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        file = Path(folder) / "test_case.py"
        file.write_text(_PYTEST_FILE)
        options = ["--import-mode=importlib", f"--rootdir={folder}", f"--benchmark-max-time={seconds}"]
        pytest.main(["-q", "-p", "no:cacheprovider", "-n0", *options, str(file)])
    return results[0]


_TAKING: list[Callable[[object], None]] = []


def taking(benchmark: object) -> None:
    """What the test of the moment does with the fixture."""
    sys.modules["__main__"]._TAKING[0](benchmark)


HARNESSES: dict[str, tuple[Callable[[Launch, float], Reached], float]] = {
    "roofwatch": (ours, LIMIT_S),
    "torch.utils.benchmark": (torch_benchmark, 0.01),
    "pytest-benchmark": (pytest_benchmark, 0.01),
}
"""Each with the seconds that it is given first."""


def calls() -> dict[str, Launch]:
    """Operations that take from microseconds to milliseconds."""
    torch.manual_seed(0)
    a, b = torch.randn(256, 256), torch.randn(256, 256)
    x, weight = torch.randn(128, 2048), torch.randn(2048)
    big = torch.randn(1 << 20)
    return {
        "add, 1 000 values": lambda: a[:4].add(1.0),
        "rms_norm, 128 x 2048": lambda: torch.nn.functional.rms_norm(x, (2048,), weight),
        "softmax, 128 x 2048": lambda: torch.softmax(x, -1),
        "product, 256 cubed": lambda: a @ b,
        "gelu, 1 M values": lambda: torch.nn.functional.gelu(big),
    }


def seconds_to_reach(harness: str, launch: Launch) -> Reached:
    """Ask with more and more time until the interval is narrow enough, or the limit is."""
    ask, seconds = HARNESSES[harness]
    spent = 0.0
    while True:
        reached = ask(launch, min(seconds, LIMIT_S))
        spent += reached.seconds
        if reached.width <= ENOUGH or seconds >= LIMIT_S:
            return replace(reached, seconds=spent)
        seconds *= 2


def _reached(seconds: float, samples_ns: list[float]) -> Reached:
    return Reached(seconds, len(samples_ns), relative_width_of_median(samples_ns), statistics.median(samples_ns))


def main() -> None:
    """Measure in turn, and print one table."""
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # as in our workers: what torch has loaded is no garbage, and takes a tenth of a second to look through
    order = random.Random(0)  # noqa: S311  an order to measure in, no secret
    print("| call | " + " | ".join(HARNESSES) + " |")
    print("|---" * (1 + len(HARNESSES)) + "|")
    for name, launch in calls().items():
        rounds: dict[str, list[Reached]] = {harness: [] for harness in HARNESSES}
        for _ in range(ROUNDS):
            for harness in order.sample(list(HARNESSES), len(HARNESSES)):
                rounds[harness].append(seconds_to_reach(harness, launch))
        print(f"| {name} | " + " | ".join(_cell(rounds[harness]) for harness in HARNESSES) + " |", flush=True)


def _cell(rounds: list[Reached]) -> str:
    got_there = sum(one.width <= ENOUGH for one in rounds)
    medians_ns = sorted(one.median_ns for one in rounds)
    return (
        f"{statistics.median(one.seconds for one in rounds):.3f} s, {got_there} of {ROUNDS}, "
        f"{statistics.median(one.samples for one in rounds):.0f} samples, {format_ns(statistics.median(medians_ns))} "
        f"±{(medians_ns[-1] / medians_ns[0] - 1) / 2:.1%}"
    )


if __name__ == "__main__":
    main()
