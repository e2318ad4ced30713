"""Rules about launches: time of the host, gaps, and work that could be one kernel."""

from collections.abc import Iterator

from roofwatch.ci.diagnosis.evidence import FIXED_SHARE, GAP_SHARE, Evidence, Limit
from roofwatch.ci.diagnosis.finding import DiagnosisFinding, Rule, Weight
from roofwatch.ci.messages import listed
from roofwatch.model.measurement import is_host_bound
from roofwatch.model.metrics import format_bytes, format_ns

SMALL_KERNEL_NS = 10_000.0
"""Below it launching takes a fifth of the time or more."""
# two may be needed; from three on fusing pays
MANY_KERNELS = 3
_FUSIBLE_RATIO = 1.5
"""Moved / necessary bytes of torch's operators; an operator more moves at least this."""
_OPERATORS = 5
"""Operators that are listed."""


def host_gaps(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    """Launches waited for the host while they were timed."""
    if any(block.has_host_gaps for block in evidence.blocks):
        yield DiagnosisFinding(
            title="times include host time",
            text="Launches could not be queued ahead: the call waits for the device or issues too "
            "slowly.",
            advice="Measure with --timer cupti, or remove the synchronisation (.item(), .cpu(), "
            "printing a tensor).",
            weight=Weight.DOUBT,
        )


def host_bound(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    """Issuing a call takes longer than running it, or nearly so."""
    timing = evidence.timing
    if timing is None or timing.host_ns is None:
        return
    busy_ns = timing.median_ns
    host_ns = timing.host_ns
    if not is_host_bound(busy_ns, host_ns):
        return
    # whichever takes longer sets the pace of a loop
    if host_ns > busy_ns:
        consequence = f"in a loop the device is idle for {1 - busy_ns / host_ns:.0%} of the time"
    else:
        consequence = (
            f"a kernel that takes less than {host_ns / busy_ns:.0%} of its time would "
            f"wait for the host"
        )
    yield DiagnosisFinding(
        title="the host is slower than the device",
        text=f"Issuing one call takes {format_ns(host_ns)}, running it {format_ns(busy_ns)}: "
        f"{consequence}.",
        advice="Issue less work from the host: a CUDA graph of several calls (torch.compile with "
        "mode='reduce-overhead'), larger batches, or fewer and larger kernels. A faster kernel "
        "changes nothing here.",
        weight=_weight_of_limit(evidence, Limit.HOST),
        most_speedup=host_ns / busy_ns,
    )


def _weight_of_limit(evidence: Evidence, limit: Limit) -> Weight:
    """A finding names the limit if that limit binds; otherwise it is one of several causes."""
    if evidence.limit is limit:
        return Weight.BINDING
    return Weight.CAUSE


def gaps(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    """Nothing runs for a large part of a call of several kernels."""
    timing = evidence.timing
    if timing is None or evidence.gap_share < GAP_SHARE:
        return
    kernels = "its kernels"
    if timing.kernel_count:
        kernels = f"its {timing.kernel_count} kernels"
    yield DiagnosisFinding(
        title="gaps between kernels",
        text=f"A call takes {format_ns(timing.span_ns)}, but {kernels} run for only "
        f"{format_ns(timing.median_ns)}: "
        f"nothing runs for {1 - timing.median_ns / timing.span_ns:.0%} of the time.",
        advice="Fuse the kernels into one (in Triton, or with torch.compile), or launch them as "
        "one CUDA graph.",
        weight=_weight_of_limit(evidence, Limit.LAUNCH),
        most_speedup=timing.span_ns / timing.median_ns,
    )


def small_launches(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    """A call is so short that launching is most of it."""
    timing = evidence.timing
    if timing is None or evidence.limit is not Limit.LAUNCH or evidence.gap_share >= GAP_SHARE:
        return
    time = f"A call takes {format_ns(timing.median_ns)}"
    source = "a typical value"
    if evidence.floor_ns:
        source = "measured in the same run"
    if evidence.fixed_share >= FIXED_SHARE:
        kernels = "an empty kernel"
        if (timing.kernel_count or 1) > 1:
            kernels = f"{timing.kernel_count} empty kernels"
        text = (
            f"{time}; {kernels} would take about {format_ns(evidence.fixed_ns)} ({source}), "
            f"{evidence.fixed_share:.0%} "
            "of it."
        )
    else:
        text = (
            f"{time}, but its work needs only {format_ns(evidence.roof.ideal_ns or 0.0)}; one "
            f"empty operator takes "
            f"{format_ns(evidence.one_launch_ns)} ({source}), so nearly all of the time is call "
            f"overhead."
        )
    yield DiagnosisFinding(
        title="too little work per launch",
        text=text,
        advice="Do more work per launch: use larger batches, or fuse it with its neighbours. "
        "Tuning the kernel does "
        "not help at this size.",
        weight=Weight.BINDING,
        most_speedup=timing.median_ns / evidence.one_launch_ns,
    )


def many_kernels(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    """A call launches several kernels that are short on average."""
    timing = evidence.timing
    if timing is None or timing.kernel_count is None or timing.kernel_count < MANY_KERNELS:
        return
    mean_ns = timing.median_ns / timing.kernel_count
    reachable_ns = evidence.reachable_ns
    # large kernels hide the cost of their launches
    if mean_ns < SMALL_KERNEL_NS:
        most_speedup = None
        if reachable_ns is not None:
            most_speedup = timing.median_ns / reachable_ns
        yield DiagnosisFinding(
            title="many small kernels",
            text=f"A call launches {timing.kernel_count} kernels of {format_ns(mean_ns)} on "
            f"average.",
            advice="Fuse them with torch.compile or in one Triton kernel, to keep intermediate "
            "values in registers.",
            most_speedup=most_speedup,
        )


def fusible_operators(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    """Several operators of torch pass intermediate values through memory."""
    profile = evidence.profile
    needed_bytes = evidence.case.memory_bytes
    if profile is None or len(profile.operator_bytes) < 2 or not needed_bytes:
        return
    moved_bytes = sum(profile.operator_bytes.values())
    # caches and padding make some extra traffic normal
    if moved_bytes < _FUSIBLE_RATIO * needed_bytes:
        return
    bytes_by_operator = profile.operator_bytes.items()
    largest = sorted(bytes_by_operator, key=lambda entry: -entry[1])
    operators = [f"{name} {format_bytes(count)}" for name, count in largest]
    text = (
        f"{len(largest)} operators move {format_bytes(moved_bytes)} in a call, "
        f"{moved_bytes / needed_bytes:.1f} times what the case needs: "
        f"{listed(operators, _OPERATORS)}"
    )
    elementwise_names = [name for name, _ in largest if name in profile.elementwise_names]
    if elementwise_names:
        text += f". Element by element: {', '.join(elementwise_names)}"
    yield DiagnosisFinding(
        title="operators that could be one kernel",
        text=f"{text}.",
        advice="Fuse them with torch.compile or in one Triton kernel: element-wise operators into "
        "the operator before or after them, so that only inputs and results pass through memory.",
        most_speedup=moved_bytes / needed_bytes,
    )


LAUNCH_RULES: tuple[Rule, ...] = (
    host_gaps,
    host_bound,
    gaps,
    small_launches,
    many_kernels,
    fusible_operators,
)
