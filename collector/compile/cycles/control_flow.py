"""Basic blocks, loops and how often each block runs.

Loops are natural loops: a branch back to a block that dominates it. A block after a condition
counts by half, unless it leads to a loop that the other side avoids.

Sources: Aho, Lam, Sethi, Ullman, Compilers (2006), sections 9.6.1 to 9.6.6; Cooper, Harvey,
Kennedy, A Simple, Fast Dominance Algorithm (2001); Ball and Larus, Branch Prediction for Free
(1993), for the rule that loops are entered.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from roofwatch.collector.compile.cycles.parse import Instruction

_MOST_WAYS = 2
"""Of a condition; a table has more."""


@dataclass
class BasicBlock:
    """Instructions that run one after the other."""

    start: int
    end: int
    successors: list[int] = field(default_factory=list)
    frequency: float = 0.0
    """Runs per iteration of the innermost loop around it, or per launch."""


@dataclass
class Loop:
    """A natural loop; blocks are numbered in the order of the code."""

    header: int
    blocks: frozenset[int]
    children: list["Loop"] = field(default_factory=list)


@dataclass(frozen=True)
class ControlFlow:
    blocks: list[BasicBlock]
    loops: list[Loop]
    """Outermost ones, in the order of the code."""


def control_flow(instructions: Sequence[Instruction]) -> ControlFlow:
    """Find the blocks and loops of a function, and how often each block runs."""
    blocks = _blocks(instructions)
    if not blocks:
        return ControlFlow([], [])
    _add_dispatched(blocks, instructions)
    order = _reverse_postorder(blocks)
    dominator = _immediate_dominators(blocks, order)
    loops = _loops(blocks, order, dominator)
    roots = _nested(loops)
    _set_frequencies(blocks, order, loops)
    return ControlFlow(blocks, roots)


def _blocks(instructions: Sequence[Instruction]) -> list[BasicBlock]:
    """Cut the code into blocks, and link each with those that may run next."""
    starts = _block_starts(instructions)
    ends = [*starts[1:], len(instructions)]
    blocks = [BasicBlock(start, end) for start, end in zip(starts, ends, strict=True)]
    number_at = {start: number for number, start in enumerate(starts)}
    for number, block in enumerate(blocks):
        last = instructions[block.end - 1]
        is_jump = last.target is not None
        # a jump without a condition never goes on to the next block
        always_leaves = (is_jump or last.is_end) and not last.is_conditional
        following = number + 1
        if not always_leaves and following < len(blocks):
            block.successors.append(following)
        # a call leads out of the function
        if last.target is None or last.target not in number_at:
            continue
        target = number_at[last.target]
        if target not in block.successors:
            block.successors.append(target)
    return blocks


def _block_starts(instructions: Sequence[Instruction]) -> list[int]:
    """A block begins where a jump leads, and after every jump."""
    starts = {0}
    for index, instruction in enumerate(instructions):
        is_jump = instruction.target is not None
        if instruction.target is not None:
            starts.add(instruction.target)
        if is_jump or instruction.is_end:
            starts.add(index + 1)
    return sorted(start for start in starts if start < len(instructions))


def _add_dispatched(blocks: Sequence[BasicBlock], instructions: Sequence[Instruction]) -> None:
    """Let a branch through a table lead to each block that nothing else leads to."""
    dispatching = [block for block in blocks if instructions[block.end - 1].is_dispatch]
    if not dispatching:
        return
    seen = set(_reverse_postorder(blocks))
    for number, block in enumerate(blocks):
        is_padding = block.successors == [number]
        if number not in seen and not is_padding:
            dispatching[0].successors.append(number)
            seen = set(_reverse_postorder(blocks))


def _reverse_postorder(blocks: Sequence[BasicBlock]) -> list[int]:
    """Order the blocks that can be reached, each before its successors.

    A jump back is the exception.
    """
    order: list[int] = []
    seen = {0}
    # an explicit stack: an unrolled kernel has more blocks than Python's stack has frames
    stack = [(0, iter(blocks[0].successors))]
    while stack:
        number, successors = stack[-1]
        unseen = (successor for successor in successors if successor not in seen)
        following = next(unseen, None)
        if following is None:
            order.append(number)
            stack.pop()
            continue
        seen.add(following)
        stack.append((following, iter(blocks[following].successors)))
    order.reverse()
    return order


def _predecessors(blocks: Sequence[BasicBlock], order: Sequence[int]) -> dict[int, list[int]]:
    """Blocks that lead to each block."""
    predecessors: dict[int, list[int]] = {number: [] for number in order}
    for number in order:
        for successor in blocks[number].successors:
            predecessors[successor].append(number)
    return predecessors


def _immediate_dominators(blocks: Sequence[BasicBlock], order: Sequence[int]) -> dict[int, int]:
    """Map each block to the nearest block that every way to it passes; the first, to itself.

    Source: Cooper, Harvey, Kennedy (2001), figure 3.
    """
    position = {number: index for index, number in enumerate(order)}
    predecessors = _predecessors(blocks, order)
    dominator = {order[0]: order[0]}

    def common(first: int, second: int) -> int:
        """The nearest block that dominates both."""
        while first != second:
            while position[first] > position[second]:
                first = dominator[first]
            while position[second] > position[first]:
                second = dominator[second]
        return first

    is_changed = True
    while is_changed:
        # a loop may change its own header's dominator
        is_changed = False
        for number in order[1:]:
            processed = [before for before in predecessors[number] if before in dominator]
            # in this order, one predecessor at least was processed before
            nearest = processed[0]
            for predecessor in processed[1:]:
                nearest = common(nearest, predecessor)
            if dominator.get(number) != nearest:
                dominator[number] = nearest
                is_changed = True
    return dominator


def _loops(
    blocks: Sequence[BasicBlock],
    order: Sequence[int],
    dominator: dict[int, int],
) -> list[Loop]:
    """Find the natural loops; those with one header are one loop."""
    predecessors = _predecessors(blocks, order)

    def dominates(upper: int, lower: int) -> bool:
        while lower != upper and dominator[lower] != lower:
            lower = dominator[lower]
        return lower == upper

    bodies: dict[int, set[int]] = {}
    for number in order:
        for header in blocks[number].successors:
            # an edge back to a block that dominates it closes a loop
            if dominates(header, number):
                body = bodies.setdefault(header, {header})
                _add_body(body, number, predecessors)
    by_header = sorted(bodies.items())
    return [Loop(header, frozenset(body)) for header, body in by_header]


def _add_body(body: set[int], last: int, predecessors: dict[int, list[int]]) -> None:
    """Add the blocks from which the last one of a loop is reached without passing its header."""
    waiting = [last]
    while waiting:
        member = waiting.pop()
        # the header is in the body from the start, so the walk back ends there
        if member in body:
            continue
        body.add(member)
        waiting += predecessors[member]


def _nested(loops: Sequence[Loop]) -> list[Loop]:
    """Put each loop into the smallest one around it; return those without."""
    roots: list[Loop] = []
    for loop in loops:
        around = [outer for outer in loops if outer is not loop and loop.header in outer.blocks]
        owner = min(around, key=lambda outer: len(outer.blocks), default=None)
        siblings = roots
        if owner is not None:
            siblings = owner.children
        siblings.append(loop)
    return roots


# --- frequencies


def _set_frequencies(
    blocks: Sequence[BasicBlock],
    order: Sequence[int],
    loops: Sequence[Loop],
) -> None:
    """Set how often each block runs per iteration of the loop around it."""
    headers = {loop.header for loop in loops}
    position = {number: index for index, number in enumerate(order)}
    reached = _reached_headers(
        blocks=blocks,
        order=order,
        headers=headers,
        position=position,
    )
    innermost = _innermost_loops(loops)
    # how often a block is entered, per iteration of the loop around it
    inflow = dict.fromkeys(order, 0.0)
    inflow[order[0]] = 1.0
    entered: dict[int, float] = {}
    for number in order:
        block = blocks[number]
        if number in headers:
            # how often the loop is entered is counted outside of it
            entered[number] = inflow[number]
            inflow[number] = 1.0
        block.frequency = inflow[number]
        around = innermost.get(number)
        forward = [item for item in block.successors if position[item] > position[number]]
        inside = forward
        if around is not None:
            inside = [successor for successor in forward if successor in around.blocks]
        for successor in inside:
            share = 1 / len(inside)
            # after a table, each warp goes one way
            if len(inside) <= _MOST_WAYS:
                share = _probability(successor, inside, reached)
            inflow[successor] += block.frequency * share
        if around is not None:
            _leave(
                block=block,
                loop=around,
                inflow=inflow,
                entered=entered,
            )
    for loop in loops:
        blocks[loop.header].frequency = 1.0
        _scale_entry(loop, blocks, entered.get(loop.header, 1.0))


def _innermost_loops(loops: Sequence[Loop]) -> dict[int, Loop]:
    """Map each block in a loop to the smallest loop that has it."""
    innermost: dict[int, Loop] = {}
    # from the largest: a smaller loop replaces those around it
    for loop in sorted(loops, key=lambda item: -len(item.blocks)):
        innermost.update(dict.fromkeys(loop.blocks, loop))
    return innermost


def _probability(successor: int, inside: Sequence[int], reached: dict[int, set[int]]) -> float:
    """Probability that a condition leads to one of its sides."""
    if len(inside) == 1:
        return 1.0
    others: set[int] = set()
    for sibling in inside:
        if sibling != successor:
            others |= reached[sibling]
    # a guard skips a loop only if there is nothing to do
    if reached[successor] - others:
        return 1.0
    if others - reached[successor]:
        return 0.0
    return 1 / len(inside)


def _leave(
    block: BasicBlock,
    loop: Loop,
    inflow: dict[int, float],
    entered: dict[int, float],
) -> None:
    """Let each way out of a loop take what entered it, once."""
    entries = entered.get(loop.header, 1.0)
    for successor in block.successors:
        if successor in loop.blocks or successor not in inflow:
            continue
        largest = max(inflow[successor], entries)
        inflow[successor] = min(1.0, largest)


def _scale_entry(loop: Loop, blocks: Sequence[BasicBlock], entries: float) -> None:
    """Count the blocks of a loop per entry of the loop around it."""
    if entries >= 1.0:
        return
    for number in loop.blocks:
        blocks[number].frequency *= max(entries, 0.0)


def _reached_headers(
    blocks: Sequence[BasicBlock],
    order: Sequence[int],
    headers: set[int],
    position: dict[int, int],
) -> dict[int, set[int]]:
    """Return the loops that each block leads to without going back."""
    reached: dict[int, set[int]] = {}
    for number in reversed(order):
        led_to = {number} & headers
        for successor in blocks[number].successors:
            if position[successor] > position[number]:
                led_to |= reached[successor]
        reached[number] = led_to
    return reached
