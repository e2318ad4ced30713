"""Time the analysis of synthetic projects, from a real database.

    PYTHONPATH=. python bench/judge_scale.py [SERIES_COUNT ...] [--commits N] [--step-every N]

Series have 2 % noise; by default one in fifty has a step of 20 %. Targets: 2,000 series within 10 s,
100,000 series of 500 points within 600 s.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

from bench.made_up_store import Shape, fill, settle
from roofwatch.ci.history.analyse import analyse_project
from roofwatch.db.engine.session import open_store


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("series_counts", type=int, nargs="*", default=[2_000])
    parser.add_argument("--commits", type=int, default=500)
    parser.add_argument("--step-every", type=int, default=50, help="one series in this many has a step")
    arguments = parser.parse_args()
    for series_count in arguments.series_counts:
        shape = Shape("judged", arguments.commits, series_count, day_count=30, step_every=arguments.step_every)
        with tempfile.TemporaryDirectory() as folder, open_store(folder=Path(folder)) as engine:
            fill(engine, shape, 0)
            settle(engine)
            started, spent = time.monotonic(), time.process_time()
            regressions = analyse_project(engine, shape.project(0))
            print(
                f"{series_count} series of {arguments.commits} points: analysed in {time.monotonic() - started:.1f} s "
                f"({time.process_time() - spent:.1f} s in Python), {len(regressions)} regressions, "
                f"at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10:.0f} MiB",
                flush=True,
            )


if __name__ == "__main__":
    main()
