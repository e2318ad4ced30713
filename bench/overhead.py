"""Where the wall time of a run goes: how much of it is spent timing and warming kernels.

    python bench/overhead.py [KERNEL ...]

Measures the small cases of the suite that comes with roofwatch on this machine's CPU, without compiling for GPUs, and
prints what the record says of itself. Kernels are patterns, such as `softmax*`; all of them take a quarter of an hour.
"""

from __future__ import annotations

import sys

from collector.nursery import Nursery
from collector.run import collect_run
from collector.sampling import EFFORTS, Preset
from collector.spent_time import Activity
from collector.suite_run import RunPlan
from roofwatch.arguments import suite_at

_KERNEL = (Activity.WARM_UP, Activity.TIMING)
_BLOCKS = (*_KERNEL, Activity.OVERHEAD)


def split(preset: Preset, kernels: tuple[str, ...]) -> dict[str, int]:
    """Wall time by activity of one run, in ns."""
    effort = EFFORTS[preset]
    plan = RunPlan(
        kernels=kernels,
        targets=(),
        device="cpu",
        usual_tag="small",
        block_count=effort.block_count,
        sampling=effort.sampling,
    )
    with Nursery() as nursery:
        return collect_run(suite_at(None, None), plan, nursery=nursery).spent_ns


def main() -> None:
    """Run and print."""
    spent_ns = split(Preset.SURVEY, tuple(sys.argv[1:]) or ("*",))
    total_ns = sum(spent_ns.values())
    for activity, nanoseconds in spent_ns.items():
        print(f"{activity:12}{nanoseconds / 1e9:9.1f} s {nanoseconds / total_ns:7.1%}")

    def share(of: tuple[Activity, ...], among: tuple[Activity, ...]) -> float:
        return sum(spent_ns.get(one, 0) for one in of) / max(1, sum(spent_ns.get(one, 0) for one in among))

    print(f"warming and timing kernels: {share(_KERNEL, _BLOCKS):.1%} of the blocks")
    after_start = tuple(activity for activity in Activity if activity is not Activity.START)
    print(f"                            {share(_KERNEL, after_start):.1%} of the run after start-up")


if __name__ == "__main__":
    main()
