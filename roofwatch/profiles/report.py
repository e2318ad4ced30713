"""What `roofwatch profile` says: where a program spent its time, as values and sentences."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from roofwatch.ci.messages import short_name
from roofwatch.collector.profiling.attribution import AttributedTime, StepAttribution
from roofwatch.collector.profiling.captured import (
    CapturedKernel,
    CapturedProcess,
    CapturedProgram,
    CapturedTrace,
)
from roofwatch.collector.profiling.time_spent import TimeSpent
from roofwatch.model.metrics import format_ns
from roofwatch.model.results import CULPRIT_SHARE, DATA_LOADER_MARK

_WORTH_NAMING = 0.02
"""Share of a step from which a module, function or line is named in the summary."""
_CULPRIT_OWN_SHARE = 0.1
"""Share of a step from which a function that takes it itself is where to look first."""
_CULPRIT_OWN_PART = 0.75
"""Part of a function's time that it must take itself to be where to look first."""
_NAMED_ROWS = 5
_MANY_CALLS = 20
"""Calls made at a line in one step from which their number is named: it may be in a loop."""
_WIDE_SPREAD = 2.0
"""Longest step / shortest step from which the times are uncertain."""
_MIN_QUARTER_STEPS = 5
_GROWTH_RATIO = 1.3
"""Last quarter of the steps / first quarter from which they are said to grow."""
_MOSTLY_IDLE = 0.5
"""Busy share below which the GPU waits for the program more than it works."""
_SIGNAL_BASE = 128
"""A program that signal n ended has the status 128 + n, as in a shell."""
_EXPECTED_ENDS = {"the program ended", "the program ended at once", "the steps were done"}
"""Ends of a recording that need no note."""


@dataclass(frozen=True)
class ProfileReport:
    folder: str
    exit_status: int
    summary: str
    notes: tuple[str, ...]
    """What is missing from the profile, and why."""
    step: tuple[StepAttribution, ...]
    """Times of one step of the first trace's process by module, function and line: first where the
    work is done, on devices or the host; modules and lines with the most own time first.
    """
    culprit: AttributedTime | None
    """The Python function to look at first, if one takes much of the step."""
    traces: tuple[CapturedTrace, ...]
    """The trace of the steps with the most work comes first, start-up last."""
    kernels: tuple[CapturedKernel, ...]


def folder_for(command: Sequence[str]) -> Path:
    """Name a new folder after the time and the program."""
    scripts = [word for word in command if word.endswith(".py")]
    modules = [module for option, module in pairwise(command) if option == "-m"]
    # `torchrun train.py` and `python -m train` are named after what they run
    candidates = scripts or modules or list(command)
    name = Path(candidates[0]).stem
    return Path("roofwatch-profiles") / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{name}"


def report_of(capture: CapturedProgram, folder: Path) -> ProfileReport:
    """Rank the traces of a profile by their work, and summarise the first."""
    traces = [trace for process in capture.processes for trace in process.traces]
    traces.sort(key=_rank, reverse=True)
    step: tuple[StepAttribution, ...] = ()
    if traces:
        main_trace = traces[0]
        main_process = next(
            process for process in capture.processes if process.pid == main_trace.pid
        )
        attributions = _work_first(main_process.attributions, main_trace.time)
        step = tuple(map(_own_time_first, attributions))
    return ProfileReport(
        folder=str(folder),
        exit_status=capture.exit_status,
        summary=" ".join(_summary(traces, step, capture.processes)),
        notes=tuple(_notes(capture)),
        traces=tuple(traces),
        step=step,
        culprit=culprit_of(step[0]) if step else None,
        kernels=capture.kernels,
    )


def percent(share: float | None) -> str:
    if share is None:
        return ""
    return f"{share:.1%}"


def text_or_none(write: Callable[[float], str], value: float | None) -> str | None:
    """The cell of a value that may be missing."""
    if value is None:
        return None
    return write(value)


def _rank(trace: CapturedTrace) -> tuple[bool, int, int]:
    return trace.part == "window", _busy_ns(trace.time), trace.time.host_inside_ns


def _busy_ns(time: TimeSpent) -> int:
    return sum(device.busy_ns for device in time.devices)


def _work_first(
    attributions: Sequence[StepAttribution], time: TimeSpent
) -> tuple[StepAttribution, ...]:
    """Put the times first that a reader needs: those of the host if the GPU mostly waits for it."""
    # a GPU that works most of the time is what the program waits for
    busiest_share = max((device.busy_share for device in time.devices), default=0.0)
    needed = "host"
    if busiest_share >= _MOSTLY_IDLE:
        needed = "device"
    return tuple(sorted(attributions, key=lambda attribution: attribution.where != needed))


def _own_time_first(step: StepAttribution) -> StepAttribution:
    return replace(step, modules=by_own_time(step.modules), lines=by_own_time(step.lines))


def _summary(
    traces: Sequence[CapturedTrace],
    step: Sequence[StepAttribution],
    processes: Sequence[CapturedProcess],
) -> Iterator[str]:
    if not traces:
        yield _why_nothing_was_recorded(processes)
        return
    if step:
        yield from _culprit_sentences(step[0])
    time = traces[0].time
    yield _recorded_part(traces)
    if time.devices:
        yield from _device_sentences(time)
    else:
        yield from _host_sentences(time)
    # a program with several ranks writes a trace for each
    more_count = sum(trace.part == "window" for trace in traces[1:])
    if more_count:
        yield f"{more_count} more trace(s) were written."


def _culprit_sentences(step: StepAttribution) -> Iterator[str]:
    """Name the function, the modules and the lines that take the most time of their own."""
    # Python stacks make the step that has them longer than the others
    where = f"one step, {format_ns(step.total_ns)} with Python stacks"
    # times of a GPU have no Python stacks that make them longer
    if step.where == "device":
        where = f"the GPU's time of one step, {format_ns(step.total_ns)}"
    yield f"Shares are those of {where}."
    culprit = culprit_of(step)
    if culprit is not None:
        backward = ", its backward pass included" if culprit.backward_ns else ""
        yield (
            f"The function {culprit.name} ({culprit.detail}) takes "
            f"{culprit.innermost_ns / step.total_ns:.0%} itself{backward}, "
            f"called {culprit.call_count} times a step."
        )
    # a function that calls much, such as a block of layers, may take most itself
    largest = max(step.calls, key=lambda call: call.innermost_ns, default=None)
    least_ns = _CULPRIT_OWN_SHARE * step.total_ns
    if culprit is not None:
        least_ns = 2 * culprit.innermost_ns
    if largest is not None and largest.innermost_ns >= least_ns:
        yield (
            f"The function with the most own time is {largest.name} ({largest.detail}): "
            f"{largest.innermost_ns / step.total_ns:.0%}, with what it calls "
            f"{largest.inclusive_ns / step.total_ns:.0%}."
        )
    for function in step.functions[:1]:
        share = function.inclusive_ns / step.total_ns
        if share >= _WORTH_NAMING:
            yield f"{share:.0%} is in the autograd function {function.name}, backward included."
    modules = _own_shares(step.modules, step.total_ns)
    if modules:
        yield f"Modules by their own time (with what they contain): {', '.join(modules)}."
    lines = _own_shares(step.lines, step.total_ns)
    if lines:
        yield f"Lines by their own time (with what they call): {', '.join(lines)}."


def _own_shares(times: Sequence[AttributedTime], total_ns: int) -> list[str]:
    """The modules or lines with the most own time, each with its own and its inclusive share."""
    shares = []
    for time in by_own_time(times)[:_NAMED_ROWS]:
        own_share = time.innermost_ns / total_ns
        # the times come in order: all others are smaller
        if own_share < _WORTH_NAMING:
            break
        inclusive_share = time.inclusive_ns / total_ns
        calls = ""
        if time.call_count >= _MANY_CALLS:
            calls = f" in {time.call_count} calls"
        shares.append(f"{time.name} {time.detail} {own_share:.0%} ({inclusive_share:.0%}){calls}")
    return shares


def by_own_time(times: Sequence[AttributedTime]) -> tuple[AttributedTime, ...]:
    """Put those first that take the most time themselves, not those that contain the others."""
    return tuple(sorted(times, key=lambda time: -time.innermost_ns))


def culprit_of(step: StepAttribution) -> AttributedTime | None:
    """The Python function of the program that takes most time itself.

    A function whose callees and modules explain much of its time is none to look at. None if no
    function takes much of the step, or a line of such a function takes far more.
    """
    candidates = [
        call
        for call in step.calls
        if call.innermost_ns >= _CULPRIT_OWN_SHARE * step.total_ns
        and call.innermost_ns >= _CULPRIT_OWN_PART * call.inclusive_ns
    ]
    culprit = max(candidates, key=lambda call: call.innermost_ns, default=None)
    # a line may call code that no function of the program contains
    longest_line_ns = max((line.innermost_ns for line in step.lines), default=0)
    if culprit is None:
        return None
    if longest_line_ns >= max(2 * culprit.innermost_ns, CULPRIT_SHARE * step.total_ns):
        return None
    return culprit


def _recorded_part(traces: Sequence[CapturedTrace]) -> str:
    """Which part of the recording is shown, and what is left out."""
    main_trace = traces[0]
    start_up_ns = sum(trace.recorded_ns for trace in traces if trace.part == "start-up")
    steady = main_trace.steady
    # a script without a loop has no steps
    if steady is None:
        return (
            f"No step was seen three times, so the whole recording is shown, start-up included: "
            f"{format_ns(main_trace.recorded_ns)}. Choose a part with --warmup and --steps, or "
            f"--after and --for."
        )
    omitted_ns = main_trace.recorded_ns - main_trace.time.window_ns
    # the trace of a window begins after the start-up, which has its own
    if main_trace.part == "window":
        omitted_ns += start_up_ns
    step_ns = sorted(steady.step_ns)
    uncertainty = ""
    growth = growth_of_steps(steady.step_ns)
    if growth is not None:
        first_ns, last_ns = map(format_ns, growth)
        uncertainty = (
            f" The steps grow: from {first_ns} in the first quarter to {last_ns} in the last."
        )
    # for example steps with and without a checkpoint
    elif step_ns[-1] > _WIDE_SPREAD * step_ns[0]:
        uncertainty = " The steps differ much, so all sizes are uncertain."
    return (
        f"Recorded: {len(step_ns)} steps, median {format_ns(steady.median_step_ns)}, "
        f"{format_ns(step_ns[0])} to {format_ns(step_ns[-1])}, seen as {steady.steps_are}."
        f"{uncertainty} "
        f"Not counted: {format_ns(omitted_ns)} of start-up and other parts of the recording."
    )


def growth_of_steps(step_ns: Sequence[int]) -> tuple[float, float] | None:
    """Median step of the first and the last quarter of a recording, if each quarter is slower than
    the one before; None if they are not.

    A cache or a list that grows with each step does that. Noise seldom does: it would have to order
    four medians.
    """
    length = len(step_ns) // 4
    if length < _MIN_QUARTER_STEPS:
        return None
    medians = [
        statistics.median(step_ns[start : start + length]) for start in range(0, 4 * length, length)
    ]
    is_rising = all(base < head for base, head in pairwise(medians))
    if not is_rising or medians[-1] < _GROWTH_RATIO * medians[0]:
        return None
    return medians[0], medians[-1]


def _device_sentences(time: TimeSpent) -> Iterator[str]:
    busiest = max(time.devices, key=lambda device: device.busy_ns)
    yield (
        f"GPU {busiest.device} was busy for {busiest.busy_share:.0%} of the recorded "
        f"{format_ns(time.window_ns)}."
    )
    if time.kernels:
        first = time.kernels[0]
        yield (
            f"The kernel with the most time is {short_name(first.name)}: {_percent(first.share)} "
            f"of the busy time, in "
            f"{first.count} launches of {format_ns(first.mean_ns)}."
        )
    if busiest.transfer_ns:
        yield f"Copies and fills took {busiest.transfer_ns / busiest.busy_ns:.0%}."
    if busiest.busy_share < _MOSTLY_IDLE:
        yield (
            "The GPU mostly waited for the program, so faster kernels will gain little until "
            "work is issued sooner."
        )
    if time.gaps:
        gap = time.gaps[0]
        host = "outside PyTorch: Python, loading data, or waiting"
        # less than half inside PyTorch says nothing about what the rest was
        if gap.host and gap.host_inside_ns >= gap.length_ns / 2:
            host = f"in {short_name(gap.host[0][0])}"
        yield (
            f"Its longest idle time was {format_ns(gap.length_ns)}; meanwhile the host was "
            f"mostly {host}."
        )


def _host_sentences(time: TimeSpent) -> Iterator[str]:
    # it may have used NumPy or waited for data
    if not time.operators or not time.window_ns:
        yield (
            "The trace has no PyTorch operator: the program did nothing with PyTorch during the "
            "recording."
        )
        return
    inside_share = time.host_inside_ns / time.window_ns
    first = time.operators[0]
    yield (
        f"No GPU was used in the recorded {format_ns(time.window_ns)}. The busiest thread spent "
        f"{inside_share:.0%} of the "
        "time in PyTorch operators."
    )
    yield (
        f"The operator with the most time in all steps together is {short_name(first.name)}: "
        f"{_percent(first.share)} of the time, in {first.count} call(s) of "
        f"{format_ns(first.mean_ns)}."
    )
    # an annotation that covers more than the operators tells where the rest went
    covering_share = max(inside_share, _MOSTLY_IDLE)
    covering_marks = [mark for mark in time.marks if (mark.share or 0) > covering_share]
    if covering_marks:
        mark = covering_marks[0]
        yield f"The annotation {short_name(mark.name)} covers {_percent(mark.share)} of it."
        if mark.name.startswith(DATA_LOADER_MARK):
            yield (
                "So the program mostly waits for its data: make the Dataset and collate_fn of "
                "this DataLoader faster, or give it more workers."
            )
    elif inside_share < _MOSTLY_IDLE:
        yield (
            "Most of the time passed outside PyTorch: in Python, loading data, or waiting; faster "
            "operators will gain "
            "little."
        )


def _why_nothing_was_recorded(processes: Sequence[CapturedProcess]) -> str:
    if not processes:
        return (
            "Nothing was recorded: the profiler was not loaded. The program is not a Python "
            "program, or runs Python "
            "in isolation (-I, -E or -S); remove those options."
        )
    # torch's profiler needs torch in the program
    if not any(process.torch_version for process in processes):
        return "Nothing was recorded: the program never imported torch."
    if any(process.has_recorded for process in processes):
        return "The recording is lost: the program was killed before it could be written."
    return "Nothing was recorded: the program ended before the recording began; start it earlier."


def _notes(capture: CapturedProgram) -> Iterator[str]:
    if capture.was_ended:
        yield "The program was ended by roofwatch, as asked: with --end, or after --max-seconds."
    # a program that was ended has a status, but no fault
    elif capture.exit_status:
        consequence = ""
        if any(process.traces for process in capture.processes):
            consequence = "; the profile shows what it did until then"
        # such as 137 after a kill for memory
        if capture.exit_status > _SIGNAL_BASE:
            signal_number = capture.exit_status - _SIGNAL_BASE
            yield f"The program was ended by signal {signal_number}{consequence}."
            traces = [trace for process in capture.processes for trace in process.traces]
            if traces and traces[-1].end_reason == "the steps began":
                # torch's profiler may crash while it records Python stacks
                yield (
                    "It ended in the step with Python stacks. If it runs without the profiler, "
                    "choose a part with --after and --for, which records none."
                )
        else:
            yield f"The program ended with status {capture.exit_status}{consequence}."
    for process in capture.processes:
        # a trace is written when its recording ends
        if process.has_recorded and not process.traces and not process.errors:
            yield f"Process {process.pid} was killed before its trace could be written."
        if process.forked_count:
            yield (
                f"{process.forked_count} process(es) were forked from process {process.pid}, for "
                f"example DataLoader "
                "workers: the trace shows waiting for them, but not their work."
            )
        for trace in process.traces:
            # the start-up ends where the steps begin, as it should
            if trace.part == "start-up":
                continue
            if trace.end_reason == "the window ended":
                yield f"{trace.trace} ends after the time to record (--for); the program went on."
            elif trace.end_reason not in _EXPECTED_ENDS:
                yield f"{trace.trace} of process {process.pid} ends early: {trace.end_reason}."
        for error in process.errors:
            yield f"Process {process.pid}: {error}"


def _percent(share: float | None) -> str:
    if share is None:
        return ""
    return f"{share:.0%}"
