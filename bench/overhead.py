"""Where the wall time of a run goes: how much of it is spent timing and warming kernels.

    python bench/overhead.py [--preset quick] [--targets sm_90,gfx942] [KERNEL ...]

Measures the small cases of the suite that comes with roofwatch on this machine's CPU, and prints what the record says
of itself. Kernels are patterns, such as `softmax*`. Of a second run the compilers' caches are warm: say which it was.
"""

from __future__ import annotations

import argparse
import sys
import time

from collector.nursery import Nursery
from collector.run import Progress, collect_run
from collector.run_plan import RunPlan
from collector.sampling import EFFORTS, Preset
from collector.spent_time import Activity
from collector.targets import DEFAULT_TARGETS
from roofwatch.arguments import suite_at

_KERNEL = (Activity.WARM_UP, Activity.TIMING)
_BLOCKS = (*_KERNEL, Activity.OVERHEAD)
_AFTER_START = tuple(activity for activity in Activity if activity is not Activity.START)


def split(preset: Preset, kernels: tuple[str, ...], targets: tuple[str, ...]) -> dict[str, int]:
    """Wall time by activity of one run, in ns."""
    effort = EFFORTS[preset]
    plan = RunPlan(
        kernels=kernels,
        targets=targets,
        device="cpu",
        usual_tag="small",
        block_count=effort.block_count,
        sampling=effort.sampling,
    )
    began_s = time.monotonic()

    def tell(progress: Progress) -> None:
        taken_s = time.monotonic() - began_s
        print(f"{taken_s:7.0f} s  {progress.done:>4} of {progress.total}  {progress.text}", file=sys.stderr, flush=True)

    with Nursery() as nursery:
        return collect_run(suite_at(None, None), plan, tell, nursery=nursery).spent_ns


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("kernels", nargs="*", default=["*"])
    parser.add_argument("--preset", type=Preset, default=Preset.SURVEY, choices=list(Preset))
    parser.add_argument("--targets", default=",".join(DEFAULT_TARGETS), help="to compile for; none if empty")
    asked = parser.parse_intermixed_args()
    targets = tuple(target for target in asked.targets.split(",") if target)
    spent_ns = split(asked.preset, tuple(asked.kernels), targets)
    total_ns = sum(spent_ns.values())
    for activity, nanoseconds in spent_ns.items():
        print(f"{activity:12}{nanoseconds / 1e9:9.1f} s {nanoseconds / total_ns:7.1%}")

    def share(of: tuple[Activity, ...], among: tuple[Activity, ...]) -> float:
        return sum(spent_ns.get(one, 0) for one in of) / max(1, sum(spent_ns.get(one, 0) for one in among))

    print(f"warming and timing kernels: {share(_KERNEL, _BLOCKS):.1%} of the blocks")
    print(f"                            {share(_KERNEL, _AFTER_START):.1%} of the run after start-up")


if __name__ == "__main__":
    main()
