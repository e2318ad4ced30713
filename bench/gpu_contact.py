"""First contact with a GPU: the machine, its ceilings, and two launches timed by every timer.

    python -m bench.gpu_contact [--device cuda] [--json]

It takes seconds, so it is the first evidence that a GPU, NVML and the profiling interface work.
What fails costs only its own value, which is then the reason.
"""

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

import torch

from roofwatch.collector.device.ceilings import measure_ceilings
from roofwatch.collector.device.environment import collect_environment, device_uuid
from roofwatch.collector.device.nvml import NvmlDevice, NvmlError
from roofwatch.collector.timing.timing import choose_method, sample_launches
from roofwatch.model.errors import CollectorError
from roofwatch.model.measurement import CacheState
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
LAUNCH_COUNT = 3
TIMER_COUNT = 5
"""Of a GPU: ours, and two benchmarks of Triton."""

TimesByTimer = dict[str, float | str]
"""Median in ns, or why there is none."""


def contact(device: str) -> dict[str, Any]:
    """Everything that the first minute on a device can show, by subject."""
    return {
        "environment": _or_reason(lambda: collect_environment(device).model_dump(mode="json")),
        "nvml": _or_reason(lambda: _nvml_readings(device)),
        "ceilings": _or_reason(lambda: _ceilings(device)),
        "times": time_launches(device),
    }


def _or_reason(read: Callable[[], Any]) -> Any:
    """What can be read, or why it cannot."""
    try:
        return read()
    except (CollectorError, NvmlError, UnsupportedError, ImportError, RuntimeError) as error:
        return _one_line(error)


def _nvml_readings(device: str) -> dict[str, Any]:
    """Facts of the GPU, its current clocks and power, and its health."""
    with NvmlDevice(device_uuid(device)) as gpu:
        return {**gpu.facts(), **gpu.quantities(), **gpu.health()}


def _ceilings(device: str) -> list[dict[str, Any]]:
    """Measured ceilings of memory and of bfloat16 arithmetic."""
    timer = choose_method(device).method.timer
    ceilings = measure_ceilings(device, ("bfloat16",), timer)
    return [ceiling.model_dump(mode="json") for ceiling in ceilings]


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
    parser.add_argument("--json", action="store_true", help="print JSON on one line")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("torch finds no GPU on this machine; use --device cpu", file=sys.stderr)
        return 2
    indent = 2
    if options.json:
        indent = None
    print(json.dumps(contact(options.device), indent=indent))
    return 0


if __name__ == "__main__":
    sys.exit(main())
