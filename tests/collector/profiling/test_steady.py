"""Steps of a trace, found by optimizer steps or by repetition."""

from roofwatch.collector.profiling.activities import HostEvent, HostKind
from roofwatch.collector.profiling.steady import cut_out, find_steady_part
from roofwatch.collector.profiling.trace import Trace


def trace_of(*events: HostEvent) -> Trace:
    end_ns = max(event.end_ns for event in events)
    return Trace(host_events=list(events), start_ns=0, end_ns=end_ns)


def operator(name: str, start_ns: int, length_ns: int = 10) -> HostEvent:
    return HostEvent(name, start_ns, start_ns + length_ns, kind=HostKind.OPERATOR, thread="1/1")


def optimizer_step(end_ns: int, name: str = "SGD") -> HostEvent:
    return HostEvent(
        f"Optimizer.step#{name}.step", end_ns - 5, end_ns, kind=HostKind.ANNOTATION, thread="1/1"
    )


def test_steps_last_from_one_optimizer_step_to_the_next() -> None:
    part = find_steady_part(trace_of(*(optimizer_step(end_ns) for end_ns in (100, 200, 310, 400))))

    assert part is not None
    assert part.step_ns == (100, 110, 90)
    assert (part.start_ns, part.end_ns) == (100, 400)


def test_the_optimizer_with_the_most_steps_counts() -> None:
    steps = [optimizer_step(end_ns) for end_ns in (100, 200, 300, 400)]
    part = find_steady_part(trace_of(*steps, optimizer_step(150, "Adam")))

    assert part is not None
    assert part.step_ns == (100, 100, 100)


def test_a_slow_first_step_is_left_out() -> None:
    ends_ns = (100, 900, 1000, 1100, 1200)
    part = find_steady_part(trace_of(*(optimizer_step(end_ns) for end_ns in ends_ns)))

    assert part is not None
    assert part.step_ns == (100, 100, 100)


def test_repeated_operators_are_steps_without_an_optimizer() -> None:
    names = ["load", "load", *["mm", "relu", "mm", "softmax"] * 5, "save"]
    events = [operator(name, 20 * place) for place, name in enumerate(names)]
    part = find_steady_part(trace_of(*events))

    assert part is not None
    assert part.steps_are == "repeated operators"
    assert len(part.step_ns) == 5
    assert (part.start_ns, part.end_ns) == (40, 40 + 19 * 20 + 10)


def test_operators_that_never_repeat_are_no_steps() -> None:
    events = [operator(name, 20 * place) for place, name in enumerate("abcdefgh")]

    assert find_steady_part(trace_of(*events)) is None


def test_events_over_the_ends_of_a_part_are_cut() -> None:
    steps = [optimizer_step(end_ns) for end_ns in (100, 200, 300, 400)]
    trace = trace_of(*steps, operator("mm", 390, 50), operator("load", 0, 20))
    part = find_steady_part(trace)
    assert part is not None
    steady = cut_out(trace, part)

    operators = [event for event in steady.host_events if event.kind == HostKind.OPERATOR]
    assert [(event.start_ns, event.end_ns) for event in operators] == [(390, 400)]
    assert steady.window_ns == 300
