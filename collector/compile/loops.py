"""Bounds of values that loops change."""

from collections.abc import Iterable, Mapping

from roofwatch.collector.compile.bounds import Bounds, Constraints, Ranges, joined
from roofwatch.collector.compile.conditions import implied
from roofwatch.collector.compile.interval import ARITHMETIC, UNBOUNDED, Interval, trip_count
from roofwatch.collector.compile.ir import IrBlock, Operation, Value


def bound_counter(ranges: Ranges, loop: Operation) -> Bounds:
    """Bound the counter of a `for` loop, in its body."""
    start, stop, step = (ranges.of(operand) for operand in loop.operands[:3])
    first = start.interval.low
    is_constant = start.interval.is_one and stop.interval.is_one and step.interval.is_one
    if is_constant and step.interval.low > 0:
        # With a step of 3, `range(0, 10, 3)` ends at 9, and `range(0, 9, 3)` at 6.
        count = trip_count(start.interval, stop.interval, step.interval)
        high = first + max(count - 1, 0) * step.interval.low
    else:
        high = max(stop.interval.high - 1, first)
    return joined((start, stop, step), Interval(first, high))


def count_trips(ranges: Ranges, loop: Operation) -> int:
    """Return the largest number of iterations of a `for` loop."""
    start, stop, step = loop.operands[:3]
    step_interval = ranges.of(step).interval
    # `range(x, x + 4)` runs four times, whatever x is: their bounds alone would not say so.
    distance = distance_between(ranges, stop, start)
    if distance is not None:
        return trip_count(Interval(0, 0), distance.interval, step_interval)
    start_interval = ranges.of(start).interval
    stop_interval = ranges.of(stop).interval
    return trip_count(start_interval, stop_interval, step_interval)


def bound_carried(
    ranges: Ranges,
    loop: Operation,
    argument: Value,
    *,
    is_after: bool,
) -> Bounds:
    """Bound a value that each iteration changes by an amount that is bounded, or replaces."""
    # Operands are start, stop, step and initial values; arguments are the counter and the values.
    initial = ranges.of(loop.operands[argument.index + 2])
    last = loop.regions[0][-1].last
    assert last is not None, loop.text
    count = count_trips(ranges, loop)
    if not is_after:
        # The last iteration reads what the one before it wrote.
        count -= 1
    return _bound_iterated(
        ranges=ranges.outside(loop),
        argument=argument,
        initial=initial,
        updated=last.operands[argument.index - 1],
        count=count,
    )


def _bound_iterated(
    ranges: Ranges,
    argument: Value,
    initial: Bounds,
    *,
    updated: Value,
    count: int,
) -> Bounds:
    """Bounds of a carried value after at most `count` iterations."""
    step = distance_between(ranges, updated, argument)
    if step is not None:
        total = step.interval.times(Interval(0, max(count, 0)))
        return joined((initial, step), initial.interval.plus(total))
    # Not a sum: what one iteration makes of any value holds for all of them.
    return _bound_replaced(
        ranges=ranges,
        argument=argument,
        initial=initial,
        updated=updated,
    )


def _bound_replaced(
    ranges: Ranges,
    argument: Value,
    initial: Bounds,
    updated: Value,
) -> Bounds:
    """Bounds of a carried value that each iteration computes anew."""
    bounds = ranges.while_open(argument).of(updated)
    return joined((initial, bounds), initial.interval.union(bounds.interval))


def bound_while_argument(
    ranges: Ranges,
    loop: Operation,
    value: Value,
    block: IrBlock,
) -> Bounds:
    """Bound an argument of the condition of a `while` loop, or of its body."""
    last = loop.regions[0][-1].last
    assert last is not None, loop.text
    if block is not loop.regions[0][0]:  # the body takes what the condition passes on
        passed = last.operands[value.index + 1]
        return ranges.under(_bound_by_condition(ranges, loop)).of(passed)
    initial = ranges.of(loop.operands[value.index])
    body = loop.regions[1][-1].last
    assert body is not None, loop.text
    updated = body.operands[value.index]
    # The condition hands its values on to the body under other names.
    body_arguments = loop.regions[1][0].arguments
    renamed = {argument: last.operands[argument.index + 1] for argument in body_arguments}
    step = distance_between(
        ranges=ranges.outside(loop),
        value=updated,
        origin=value,
        renamed=renamed,
    )
    limits = _bound_by_condition(ranges, loop).get(value)
    if step is None or limits is None:
        return _bound_replaced(
            ranges=ranges,
            argument=value,
            initial=initial,
            updated=updated,
        )
    before = initial.interval
    # The condition holds before the last step, so the value ends at most one step beyond it.
    if step.interval.low >= 0:
        high_limit = min(limits.high, UNBOUNDED.high)
        last_value = max(before.high, high_limit + step.interval.high)
        return joined((initial, step), Interval(before.low, last_value))
    if step.interval.high <= 0:
        last_value = min(before.low, limits.low + step.interval.low)
        return joined((initial, step), Interval(last_value, before.high))
    return ranges.not_known(value, "a value that a loop changes")


def _bound_by_condition(ranges: Ranges, loop: Operation) -> Constraints:
    last = loop.regions[0][-1].last
    if last is None or not last.operands:
        return {}
    return implied(ranges, last.operands[0])


def distance_between(
    ranges: Ranges,
    value: Value,
    origin: Value,
    renamed: Mapping[Value, Value] | None = None,
) -> Bounds | None:
    """Bound `value - origin` if the value is the origin plus something; None otherwise."""
    if renamed is not None:
        value = renamed.get(value, value)
    if value is origin:
        return Bounds(Interval(0, 0))
    operation = value.operation
    if operation is None:
        return None
    operands = operation.operands
    if operation.name in {"arith.addi", "tt.addptr"}:
        # The origin may be either term of the sum.
        first, second = operands[:2]
        for term, other_term in ((first, second), (second, first)):
            distance = distance_between(
                ranges=ranges,
                value=term,
                origin=origin,
                renamed=renamed,
            )
            if distance is not None:
                added = ranges.of(other_term)
                total = distance.interval.plus(added.interval)
                return joined((distance, added), total)
        return None
    if operation.name == "arith.subi":
        distance = distance_between(
            ranges=ranges,
            value=operands[0],
            origin=origin,
            renamed=renamed,
        )
        if distance is None:
            return None
        taken = ranges.of(operands[1])
        total = ARITHMETIC["arith.subi"](distance.interval, taken.interval)
        return joined((distance, taken), total)
    if operation.name == "arith.minsi":
        return _distance_of_minimum(
            ranges=ranges,
            operands=operands[:2],
            origin=origin,
            renamed=renamed,
        )
    if operation.name in {"arith.select", "scf.if"}:
        return _distance_of_choice(
            ranges=ranges,
            value=value,
            origin=origin,
            renamed=renamed,
        )
    if operation.name == "scf.for":
        return _distance_of_loop(
            ranges=ranges,
            value=value,
            origin=origin,
            renamed=renamed,
        )
    return None


def _distance_of_minimum(
    ranges: Ranges,
    operands: list[Value],
    origin: Value,
    renamed: Mapping[Value, Value] | None,
) -> Bounds | None:
    """Distance of `min(...)` from an origin: at most the smallest of the known distances."""
    distances = _known_distances(
        ranges=ranges,
        values=operands,
        origin=origin,
        renamed=renamed,
    )
    if not distances:
        return None
    high = min(distance.interval.high for distance in distances)
    low = min(distance.interval.low for distance in distances)
    if len(distances) == 1:
        # `min(start + 64, end)`: a loop to it does not run if the end lies before the start.
        low = 0
    return joined(distances, Interval(min(low, high), high))


def _known_distances(
    ranges: Ranges,
    values: Iterable[Value],
    origin: Value,
    renamed: Mapping[Value, Value] | None,
) -> list[Bounds]:
    """Bound the distances of those values that are the origin plus something."""
    distances: list[Bounds] = []
    for value in values:
        distance = distance_between(
            ranges=ranges,
            value=value,
            origin=origin,
            renamed=renamed,
        )
        if distance is not None:
            distances.append(distance)
    return distances


def _distance_of_choice(
    ranges: Ranges,
    value: Value,
    origin: Value,
    renamed: Mapping[Value, Value] | None,
) -> Bounds | None:
    """Distance of a value that is one of two, if both distances are known."""
    operation = value.operation
    assert operation is not None
    if operation.name == "arith.select":
        chosen = operation.operands[1:3]
    else:
        lasts = [region[-1].last for region in operation.regions]
        chosen = [last.operands[value.index] for last in lasts if last is not None]
    distances = _known_distances(
        ranges=ranges,
        values=chosen,
        origin=origin,
        renamed=renamed,
    )
    # One side that is not origin plus something makes the distance of the choice unknown.
    if len(distances) != len(chosen) or not distances:
        return None
    interval = distances[0].interval
    for distance in distances[1:]:
        interval = interval.union(distance.interval)
    return joined(distances, interval)


def _distance_of_loop(
    ranges: Ranges,
    value: Value,
    origin: Value,
    renamed: Mapping[Value, Value] | None,
) -> Bounds | None:
    """Distance after a loop: that of the initial value plus one step for each trip."""
    loop = value.operation
    assert loop is not None
    # Results have no counter, arguments have one, and operands have start, stop and step.
    to_initial = distance_between(
        ranges=ranges,
        value=loop.operands[value.index + 3],
        origin=origin,
        renamed=renamed,
    )
    argument = loop.regions[0][0].arguments[value.index + 1]
    last = loop.regions[0][-1].last
    if to_initial is None or last is None:
        return None
    step = distance_between(
        ranges=ranges,
        value=last.operands[value.index],
        origin=argument,
        renamed=renamed,
    )
    if step is None:
        return None
    total = step.interval.times(Interval(0, count_trips(ranges, loop)))
    return joined((to_initial, step), to_initial.interval.plus(total))


def bound_quotient_of_counter(ranges: Ranges, operation: Operation) -> Interval | None:
    """Bound `i // n` for a counter of `range(0, m * n)`, whatever `n` is."""
    counter, divisor = operation.operands[:2]
    loop = None
    if counter.block is not None:
        loop = counter.block.parent
    # Argument 0 of a loop is its counter.
    if loop is None or loop.name != "scf.for" or counter.index:
        return None
    start, stop = loop.operands[:2]
    product = stop.operation
    if product is None or product.name != "arith.muli":
        return None
    if ranges.of(start).interval.low < 0:
        return None
    factors = [operand for operand in product.operands[:2] if operand is not divisor]
    # Two factors: the stop is not a multiple of the divisor. None: it is its square.
    if len(factors) != 1:
        return None
    largest_quotient = ranges.of(factors[0]).interval.high - 1
    return Interval(0, max(largest_quotient, 0))
