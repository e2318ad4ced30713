"""What launching kernels costs, and the program that does it. Pure; one function a rule.

docs/how-to/diagnose.md lists the rules with their sources.
"""

from __future__ import annotations

from collections.abc import Iterator

from roofwatch.ci.diagnosis.evidence import Evidence
from roofwatch.ci.diagnosis.finding import Finding, Limit, Weight, at_least_one
from roofwatch.ci.diagnosis.limits import (
    FIXED_SHARE,
    GAP_SHARE,
    fixed_ns,
    fixed_share,
    gap_share,
    one_launch_ns,
    reachable_ns,
)
from roofwatch.ci.message import Remark
from roofwatch.collector.record.measurement import is_host_bound
from roofwatch.collector.record.metrics import format_ns

SMALL_KERNEL_NS = 10_000.0
"""Kernels shorter than this are small: starting each costs a fifth of its time and more."""
MANY_KERNELS = 3
"""From here on joining is worth a look; two are often one that cannot be had without the other."""


def host_bound(evidence: Evidence, limit: Limit) -> Iterator[Finding]:
    """The device is done before the program has issued the next launch.

    Source: NVIDIA CUDA C++ Best Practices Guide, "Asynchronous transfers and overlapping", and PyTorch's guide on CUDA
    graphs.
    """
    timing = evidence.timing
    if timing is None or timing.host_ns is None or not is_host_bound(timing.median_ns, timing.host_ns):
        return
    yield Finding(
        rule="host_bound",
        limit=Limit.HOST,
        weight=Weight.BINDING if limit is Limit.HOST else Weight.CAUSE,
        title="the program is slower than the device",
        evidence=Remark(
            f"Issuing one call takes {format_ns(timing.host_ns)} of the program's time, the device needs "
            f"{format_ns(timing.median_ns)} for it: {_in_a_loop(timing.median_ns, timing.host_ns)}."
        ),
        advice="Issue less: a CUDA graph of several calls (torch.compile with mode='reduce-overhead' makes one), "
        "larger "
        "batches, or fewer and larger kernels. Making the kernel itself faster changes nothing here.",
        most_speedup=at_least_one(timing.host_ns / timing.median_ns),
    )


def _in_a_loop(busy_ns: float, host_ns: float) -> str:
    if host_ns > busy_ns:
        return f"in a loop of such calls it is idle for {1 - busy_ns / host_ns:.0%}"
    return f"a kernel that takes less than {host_ns / busy_ns:.0%} of its time would wait for the program"


def gaps(evidence: Evidence, limit: Limit) -> Iterator[Finding]:
    """Pauses between the kernels of a call that issuing it does not explain.

    Source: Gray, Getting Started with CUDA Graphs, 2019.
    """
    timing = evidence.timing
    if timing is None or gap_share(timing) < GAP_SHARE:
        return
    count = f"its {timing.kernel_count} kernels" if timing.kernel_count else "its kernels"
    yield Finding(
        rule="gaps",
        limit=Limit.LAUNCH,
        weight=Weight.BINDING if limit is Limit.LAUNCH else Weight.CAUSE,
        title="the device pauses between kernels",
        evidence=Remark(
            f"A call takes {format_ns(timing.span_ns)} from first to last, {count} run for "
            f"{format_ns(timing.median_ns)} "
            f"of them: nothing runs for {1 - timing.median_ns / timing.span_ns:.0%}."
        ),
        advice="Join the kernels into one (by hand in Triton, or torch.compile), or launch them as one CUDA graph.",
        most_speedup=at_least_one(timing.span_ns / timing.median_ns),
    )


def small_launches(evidence: Evidence, limit: Limit) -> Iterator[Finding]:
    """What a launch costs by itself is most of it.

    Source: Zhang, Wahib, Matsuoka, Understanding the Overheads of Launching CUDA Kernels (ICPP 2019).
    """
    timing = evidence.timing
    if timing is None or limit is not Limit.LAUNCH or gap_share(timing) >= GAP_SHARE:
        return
    known = "as measured in the same run" if evidence.floor_ns else "by rule of thumb"
    took = f"A call takes {format_ns(timing.median_ns)}"
    if fixed_share(evidence) >= FIXED_SHARE:
        told = (
            f"{took}; {_kernels(timing.kernel_count or 1)} that did nothing would take about "
            f"{format_ns(fixed_ns(evidence))} ({known}), {fixed_share(evidence):.0%} of it."
        )
    else:
        told = (
            f"{took}, though its work needs only {format_ns(evidence.roof.least_ns or 0.0)} at the ceilings of this "
            "device; "
            f"calling one operator that does nothing takes {format_ns(one_launch_ns(evidence))} ({known}), so nearly "
            "all "
            f"of the time is calls, as many as {timing.median_ns / one_launch_ns(evidence):.0f}."
        )
    yield Finding(
        rule="small_launches",
        limit=limit,
        weight=Weight.BINDING,
        title="too little work for a launch",
        evidence=Remark(told),
        advice="Do more for each launch: larger batches, or join it with its neighbours. Its body is not worth "
        "tuning at "
        "this size.",
        most_speedup=at_least_one(timing.median_ns / one_launch_ns(evidence)),
    )


def many_kernels(evidence: Evidence, limit: Limit) -> Iterator[Finding]:
    """A call of many short kernels.

    Source: Gray, Getting Started with CUDA Graphs, 2019.
    """
    del limit
    timing = evidence.timing
    if timing is None or (timing.kernel_count or 0) < MANY_KERNELS:
        return
    each_ns = timing.median_ns / (timing.kernel_count or 1)
    least_ns = reachable_ns(evidence)
    if each_ns >= SMALL_KERNEL_NS:
        return
    yield Finding(
        rule="many_kernels",
        limit=Limit.LAUNCH,
        weight=Weight.CAUSE,
        title="many small kernels",
        evidence=Remark(f"A call launches {timing.kernel_count} kernels of {format_ns(each_ns)} on average."),
        advice="Join them: what one writes and the next reads then stays in registers (torch.compile, or one Triton "
        "kernel).",
        most_speedup=None if least_ns is None else at_least_one(timing.median_ns / least_ns),
    )


def _kernels(count: int) -> str:
    return "a kernel" if count == 1 else f"{count} kernels"
