"""The work of a function as a tree of loops."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from roofwatch.collector.compile.cycles.control_flow import ControlFlow, Loop, control_flow
from roofwatch.collector.compile.cycles.costs import Work, work_of
from roofwatch.collector.compile.cycles.parse import Instruction
from roofwatch.collector.compile.cycles.rates import Rates

_MAX_SPIN = 12
"""Instructions of a loop that polls a barrier."""
_POLLING = ("SYNCS", "NANOSLEEP", "UTCATOMSWS")
"""What reads a barrier, and what asks for tensor memory."""
_MIN_WORKING = 2
"""A jump to itself, which ends a function, is no loop."""


@dataclass
class Region:
    """One iteration of a loop, or the whole function, without its inner loops."""

    always: Work = field(default_factory=Work)
    sometimes: Work = field(default_factory=Work)
    """Of blocks behind a condition, already weighted by how often they run."""
    guarded: Work = field(default_factory=Work)
    """The same blocks, as often as they are in the code."""
    loops: list["Region"] = field(default_factory=list)
    is_specialised: bool = False
    """Warps of a block run different parts of the function at once."""

    @property
    def work(self) -> Work:
        work = Work()
        work.add(self.always)
        work.add(self.sometimes)
        return work

    def walk(self) -> Iterator["Region"]:
        yield self
        for loop in self.loops:
            yield from loop.walk()


def regions_of(instructions: Sequence[Instruction], rates: Rates) -> Region:
    """Build the tree of loops; loops that wait for a barrier are left out."""
    flow = control_flow(instructions)
    is_specialised = any(instruction.is_dispatch for instruction in instructions)
    root = Region(is_specialised=is_specialised)
    inner: list[Loop] = []
    for loop in flow.loops:
        # warps come back to the table for the next task: its loop is no loop of the work
        if _dispatches(loop, flow, instructions):
            inner += loop.children
        else:
            inner.append(loop)
    inner = [loop for loop in inner if not _is_spin(loop, flow, instructions)]
    _fill(
        region=root,
        members=frozenset(range(len(flow.blocks))),
        loops=inner,
        flow=flow,
        instructions=instructions,
        rates=rates,
    )
    return root


def _fill(
    region: Region,
    members: frozenset[int],
    loops: Sequence[Loop],
    flow: ControlFlow,
    instructions: Sequence[Instruction],
    rates: Rates,
) -> None:
    """Add the blocks of a region by their frequency, and a region for each loop inside."""
    inner_blocks: set[int] = set()
    for loop in loops:
        inner_blocks |= loop.blocks
        child = Region()
        nested = [item for item in loop.children if not _is_spin(item, flow, instructions)]
        _fill(
            region=child,
            members=loop.blocks,
            loops=nested,
            flow=flow,
            instructions=instructions,
            rates=rates,
        )
        region.loops.append(child)
    for number in sorted(members - inner_blocks):
        block = flow.blocks[number]
        work = work_of(instructions[block.start : block.end], rates)
        # what always runs counts once, the rest by how likely it is
        if block.frequency >= 1.0:
            region.always.add(work)
        elif block.frequency > 0.0:
            region.sometimes.add(work, block.frequency)
            region.guarded.add(work)


def _dispatches(loop: Loop, flow: ControlFlow, instructions: Sequence[Instruction]) -> bool:
    ends = [flow.blocks[number].end - 1 for number in loop.blocks]
    return any(instructions[end].is_dispatch for end in ends)


def _is_spin(loop: Loop, flow: ControlFlow, instructions: Sequence[Instruction]) -> bool:
    """Whether a loop only waits, so that its trips are no work."""
    code = [
        instruction
        for number in loop.blocks
        for instruction in instructions[flow.blocks[number].start : flow.blocks[number].end]
    ]
    is_polling = any(instruction.mnemonic.startswith(_POLLING) for instruction in code)
    has_products = any("MMA" in instruction.mnemonic for instruction in code)
    if len(code) > _MAX_SPIN or has_products:
        return False
    return is_polling or len(code) < _MIN_WORKING
