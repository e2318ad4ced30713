"""Time the import of a history into a new embedded store, its judgement, and the list of findings.

    PYTHONPATH=. python bench/import_history.py [--commits N] [--series N]

The target is 20 s for 300 commits of 60 series on two cores. On a busy machine the seconds say
little; `busy` says how many cores of the whole machine computed meanwhile.
"""

import argparse
import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import psutil

_NOISE = 0.015
"""Standard deviation of one value, relative: usual for a GPU that others use."""
_STEPS_PER_SERIES = 0.75
_FIRST = datetime(2025, 1, 1, tzinfo=UTC)


def made_up_history(commit_count: int, series_count: int) -> str:
    """A `data.js` of github-action-benchmark, with steps of single series and one of all."""
    numbers = np.random.default_rng(7)
    # about 60 µs, from microseconds to milliseconds
    log_levels = [numbers.normal(11, 1) for _ in range(series_count)]
    levels = [math.exp(log_level) for log_level in log_levels]
    runs: list[dict[str, Any]] = []
    for position in range(commit_count):
        for series in range(series_count):
            # mostly regressions, as in a history that nobody watched
            if numbers.random() < _STEPS_PER_SERIES / commit_count:
                levels[series] *= numbers.choice([0.8, 1.1, 1.2, 1.3])
        # A new driver, or another machine: every series changes at once.
        if position == commit_count // 2:
            levels = [1.08 * level for level in levels]
        time_of_run = _FIRST + timedelta(hours=12 * position)
        benches: list[dict[str, Any]] = []
        for series, level in enumerate(levels):
            bench = {
                "name": f"kernel{series // 3}/case{series % 3}",
                "value": level * math.exp(numbers.normal(0, _NOISE)),
                "unit": "ns",
            }
            benches.append(bench)
        sha = hashlib.sha1(str(position).encode(), usedforsecurity=False).hexdigest()
        commit = {
            "id": sha,
            "message": f"Commit {position}",
            "timestamp": time_of_run.isoformat(),
        }
        run = {
            "commit": commit,
            "date": 1_000 * time_of_run.timestamp(),
            # A tool whose values are times: smaller is better.
            "tool": "julia",
            "benches": benches,
        }
        runs.append(run)
    document = {"lastUpdate": 1, "repoUrl": "https://example.org/owner/kernels"}
    return json.dumps(document | {"entries": {"suite": runs}})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=300)
    parser.add_argument("--series", type=int, default=60)
    options = parser.parse_args()
    # A new folder holds a new store, so nothing is cached.
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "data.js"
        results.write_text(made_up_history(options.commits, options.series))
        store = Path(folder) / "store"
        environment = os.environ | {"ROOFWATCH_DATA_DIR": str(store)}
        program = [sys.executable, "-m", "roofwatch"]
        total_s = 0.0
        for arguments in (
            ["import", str(results), "--ingest", "--output", str(Path(folder) / "records")],
            ["show", "regressions", "--project", "owner/kernels", "--json"],
        ):
            busy_before = _busy_s()
            began = time.perf_counter()
            done = subprocess.run(
                [*program, *arguments],
                env=environment,
                capture_output=True,
                check=True,
                text=True,
            )
            seconds = time.perf_counter() - began
            # cores that were busy on average, with those of other processes
            busy = (_busy_s() - busy_before) / seconds
            total_s += seconds
            print(f"{arguments[0]}: {seconds:.1f} s, busy {busy:.2f} cores")
        findings = json.loads(done.stdout)["regressions"]
    print(
        f"{options.commits} commits x {options.series} series: {total_s:.1f} s in all, "
        f"{len(findings)} findings"
    )


def _busy_s() -> float:
    times = psutil.cpu_times()
    return times.user + times.system + times.nice


if __name__ == "__main__":
    main()
