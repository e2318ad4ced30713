"""Where the wall time of a run goes: how much of it is spent timing and warming kernels.

    python bench/overhead.py [--preset quick] [--targets sm_90,gfx942] [--one-case] [--block-seconds 1] [KERNEL ...]

Measures the small cases of the suite that comes with roofwatch on this machine's CPU, and prints what the record says
of itself. Kernels are patterns, such as `softmax*`. Of a second run the compilers' caches are warm: say which it was.

So that all kernels can take part within minutes, `--one-case` takes one case of each, and `--block-seconds` ends a
block sooner than the preset does, but not before the preset might. A block that noise draws out makes the rest of the
run look small. So the shares are told once more as if each block had ended as soon as its preset allows: that is the
least which timing can be, whatever the noise and however long blocks were let run. What a run does once weighs more
where a kernel has one case alone, so the whole suite's shares are no smaller.
"""

from __future__ import annotations

import argparse
import glob
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from roofwatch.arguments import suite_at
from roofwatch.collector.compile.targets import DEFAULT_TARGETS
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.run import Progress, collect_run
from roofwatch.collector.run_plan import Activity, RunPlan
from roofwatch.collector.timing.method import EFFORTS, Preset, SamplingPlan
from roofwatch.collector.workers.fork_server import ForkServer

_KERNEL = (Activity.WARM_UP, Activity.TIMING)
_BLOCKS = (*_KERNEL, Activity.OVERHEAD)
_AFTER_START = tuple(activity for activity in Activity if activity is not Activity.START)


def measured(
    preset: Preset,
    kernels: tuple[str, ...],
    targets: tuple[str, ...],
    *,
    cases: tuple[str, ...] | None,
    plan: SamplingPlan,
) -> RunRecord:
    """One run of the suite that comes with roofwatch.

    Args:
        preset: Says how many blocks.
        kernels: Patterns of names.
        targets: To compile for.
        cases: Patterns of ids; None takes the small ones.
        plan: How a block is sampled.
    """
    asked = RunPlan(
        kernels=kernels,
        targets=targets,
        device="cpu",
        usual_tag="small",
        cases=cases,
        block_count=EFFORTS[preset].block_count,
        sampling=plan,
    )
    began_s = time.monotonic()

    def tell(progress: Progress) -> None:
        taken_s = time.monotonic() - began_s
        print(f"{taken_s:7.0f} s  {progress.done:>4} of {progress.total}  {progress.text}", file=sys.stderr, flush=True)

    with ForkServer() as fork_server:
        return collect_run(suite_at(None, None), asked, tell, fork_server=fork_server)


def one_case_each(kernels: Sequence[str]) -> tuple[str, ...]:
    """The first small case of each kernel that matches a pattern, as a pattern of its own."""
    from roofwatch.kernels.registry import suite

    asked = [spec for spec in suite() if any(fnmatchcase(spec.name, pattern) for pattern in kernels)]
    firsts = [next((case for case in spec.cases if "small" in case.tags), spec.cases[0]) for spec in asked]
    return tuple(glob.escape(case.id) for case in firsts)


def block_plan(preset: Preset, most_seconds: float | None) -> SamplingPlan:
    """The preset's, with an end that comes sooner.

    Raises:
        ValueError: the preset lets no block end so soon.
    """
    plan = EFFORTS[preset].sampling
    if most_seconds is None:
        return plan
    least_ms, most_ms = plan.patience_ms, plan.budget_ms
    if not least_ms <= most_seconds * 1e3 <= most_ms:
        raise ValueError(f"a block of --preset {preset} takes {least_ms / 1e3:g} to {most_ms / 1e3:g} s")
    return replace(plan, budget_ms=most_seconds * 1e3)


def with_shortest_blocks(record: RunRecord, plan: SamplingPlan) -> dict[str, int]:
    """What each activity would have taken, in ns, had every block ended as soon as its plan lets a known median end it:
    after its patience and its least samples, or when it did, if that was sooner.
    """
    least_count = max(plan.min_samples, plan.patience_samples)
    shortest_ns = 0.0
    for measurement in record.measurements:
        for block in measurement.blocks:
            taken_ns = sum(block.samples_ns) * measurement.launches_per_sample
            least_ns = max(plan.patience_ms * 1e6, taken_ns * least_count / len(block.samples_ns))
            shortest_ns += min(taken_ns, least_ns)
    timing_ns = record.spent_ns.get(Activity.TIMING, 0)
    return {**record.spent_ns, Activity.TIMING: min(timing_ns, round(shortest_ns))}


def shares(spent_ns: dict[str, int]) -> str:
    """Of the blocks, and of all after start-up, how much was spent warming and timing kernels."""

    def share(among: tuple[Activity, ...]) -> float:
        return sum(spent_ns.get(one, 0) for one in _KERNEL) / max(1, sum(spent_ns.get(one, 0) for one in among))

    return f"{share(_BLOCKS):6.1%} of the blocks, {share(_AFTER_START):6.1%} of the run after start-up"


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("kernels", nargs="*", default=["*"])
    parser.add_argument("--preset", type=Preset, default=Preset.SURVEY, choices=list(Preset))
    parser.add_argument("--targets", default=",".join(DEFAULT_TARGETS), help="to compile for; none if empty")
    parser.add_argument("--one-case", action="store_true", help="of each kernel, in place of all small ones")
    parser.add_argument("--block-seconds", type=float, help="end a block then, if it has not ended by itself")
    asked = parser.parse_intermixed_args()
    try:
        plan = block_plan(asked.preset, asked.block_seconds)
    except ValueError as error:
        parser.error(str(error))
    targets = tuple(target for target in asked.targets.split(",") if target)
    cases = one_case_each(asked.kernels) if asked.one_case else None
    record = measured(asked.preset, tuple(asked.kernels), targets, cases=cases, plan=plan)
    total_ns = sum(record.spent_ns.values())
    for activity, nanoseconds in record.spent_ns.items():
        print(f"{activity:12}{nanoseconds / 1e9:9.1f} s {nanoseconds / total_ns:7.1%}")
    blocks = [block for measurement in record.measurements for block in measurement.blocks]
    ended = sum(block.stopped_by == "precision" for block in blocks)
    print(f"{len(record.cases)} cases, {len(blocks)} blocks, of which {ended} ended because their median was known")
    print(f"warming and timing kernels: {shares(record.spent_ns)}")
    print(f"with the shortest blocks:   {shares(with_shortest_blocks(record, plan))}")


if __name__ == "__main__":
    main()
