"""Run-to-run noise of the time of a case: median of all samples against median of block medians.

    python bench/block_medians.py RECORD...

Takes records of one commit on one machine, of runs after another. The noise of a case is the robust
standard deviation of the differences between neighbouring runs, as for a history.
"""

import statistics
import sys
from collections import defaultdict
from pathlib import Path

from roofwatch.ci.history.recent import Spread
from roofwatch.model.case_key import CaseKey
from roofwatch.model.measurement import Measurement
from roofwatch.model.record import RunRecord


def pooled_median(measurement: Measurement) -> float:
    return statistics.median(measurement.samples_ns)


def main(paths: list[str]) -> None:
    pooled = defaultdict[CaseKey, list[float]](list)
    of_blocks = defaultdict[CaseKey, list[float]](list)
    for path in paths:
        record = RunRecord.read(Path(path))
        for measurement in record.measurements:
            # a failed case has no samples
            if measurement.median_ns is not None:
                key = measurement.case_key
                pooled[key].append(pooled_median(measurement))
                of_blocks[key].append(measurement.median_ns)
    ratios: list[float] = []
    print(f"{'pooled':>8} {'blocks':>8}  case")
    for key, values in sorted(pooled.items()):
        pooled_spread = Spread.of(values)
        block_spread = Spread.of(of_blocks[key])
        # Two runs have one difference, which is no spread.
        if pooled_spread is None or block_spread is None:
            continue
        ratios.append(block_spread.deviation / pooled_spread.deviation)
        noise = f"{pooled_spread.deviation:8.2%} {block_spread.deviation:8.2%}"
        case = " ".join(key)
        print(f"{noise}  {case}")
    if ratios:
        lower_count = sum(ratio < 1 for ratio in ratios)
        median_ratio = statistics.median(ratios)
        print(f"{len(ratios)} cases: median ratio {median_ratio:.2f}, lower in {lower_count}")


if __name__ == "__main__":
    main(sys.argv[1:])
