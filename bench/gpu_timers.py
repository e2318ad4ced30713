"""Time a copy, a matmul and a tiny launch once with every timer, and with Triton's benchmarks.

    python -m bench.gpu_timers [--device cuda] [--json]

It takes seconds, so it is the first evidence that a GPU and its profiling interface work. A timer
that fails costs only its own value, which is then the reason.
"""

import argparse
import json
import sys
from collections.abc import Callable

import torch

from roofwatch.collector.timing.timing import sample_launches
from roofwatch.model.errors import CollectorError
from roofwatch.model.measurement import CacheState
from roofwatch.model.metrics import format_ns
from roofwatch.model.timing_method import SamplingPlan, TimingMethod, possible_methods
from roofwatch.spec import UnsupportedError

_SIZES = {"cuda": (2**28, 8192), "cpu": (2**16, 64)}
"""Numbers that are copied, and rows of the square matrices."""
_PLAN = SamplingPlan(
    warmup_ms=20,
    budget_ms=200,
    min_samples=10,
    max_samples=50,
)

TimesByTimer = dict[str, float | str]
"""Median in ns, or why there is none."""


def launches_on(device: str) -> dict[str, Callable[[], object]]:
    """Launches of microseconds and milliseconds, bound by memory and by arithmetic."""
    element_count, row_count = _SIZES[device]
    # made once: a timed launch allocates nothing
    number = torch.ones(1, device=device)
    source = torch.ones(element_count, device=device)
    target = torch.empty_like(source)
    a = torch.randn(row_count, row_count, device=device, dtype=torch.bfloat16)
    product = torch.empty_like(a)
    return {
        "add of one number": lambda: number.add_(1),
        f"copy of {element_count} numbers": lambda: target.copy_(source),
        f"matmul of {row_count}^3": lambda: torch.matmul(a, a, out=product),
    }


def time_launches(device: str) -> dict[str, TimesByTimer]:
    """Median time of each launch by each timer."""
    times_by_launch: dict[str, TimesByTimer] = {}
    for name, launch in launches_on(device).items():
        times: TimesByTimer = {}
        for method in possible_methods(device, cache=CacheState.HOT):
            times[method.timer] = _time(launch, device, method)
        # do_bench needs a GPU
        if device == "cuda":
            times |= _by_triton(launch)
        times_by_launch[name] = times
    return times_by_launch


def _time(launch: Callable[[], object], device: str, method: TimingMethod) -> float | str:
    """Median in ns by one timer, or why it cannot be taken."""
    try:
        timed = sample_launches(
            launch=launch,
            plan=_PLAN,
            device=device,
            method=method,
        )
    except (CollectorError, UnsupportedError, RuntimeError) as error:
        return _one_line(error)
    return timed.block.median_ns


def _one_line(error: Exception) -> str:
    message = f"{type(error).__name__}: {error}"
    return message.splitlines()[0]


def _by_triton(launch: Callable[[], object]) -> TimesByTimer:
    """The same launch by Triton's benchmarks: with events, and as a CUDA graph."""
    from triton import testing

    times: TimesByTimer = {}
    # a graph cannot use the default stream
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        for benchmark in (testing.do_bench, testing.do_bench_cudagraph):
            try:
                median_ms = benchmark(launch, return_mode="median")
            except RuntimeError as error:
                times[benchmark.__name__] = _one_line(error)
            else:
                times[benchmark.__name__] = 1e6 * median_ms
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=sorted(_SIZES), default="cuda")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("torch finds no GPU on this machine; use --device cpu", file=sys.stderr)
        return 2
    times_by_launch = time_launches(options.device)
    if options.json:
        print(json.dumps(times_by_launch))
        return 0
    for name, times in times_by_launch.items():
        for timer, time in times.items():
            # a timer that failed has its reason in place of a time
            if isinstance(time, str):
                text = time
            else:
                text = format_ns(time)
            print(f"{name}: {timer} {text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
