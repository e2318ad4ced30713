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
from roofwatch.model.measurement import Measurement
from roofwatch.model.record import RunRecord


def pooled_median(measurement: Measurement) -> float:
    return statistics.median(measurement.samples_ns)


def main(paths: list[str]) -> None:
    pooled = defaultdict[tuple[str, str], list[float]](list)
    of_blocks = defaultdict[tuple[str, str], list[float]](list)
    for path in paths:
        for measurement in RunRecord.read(Path(path)).measurements:
            if measurement.median_ns is not None:
                key = measurement.case_id, measurement.implementation
                pooled[key].append(pooled_median(measurement))
                of_blocks[key].append(measurement.median_ns)
    ratios = []
    print(f"{'pooled':>8} {'blocks':>8}  case")
    for key, values in sorted(pooled.items()):
        spreads = Spread.of(values), Spread.of(of_blocks[key])
        if spreads[0] is None or spreads[1] is None:
            continue
        before, after = spreads[0].deviation, spreads[1].deviation
        ratios.append(after / before)
        print(f"{before:8.2%} {after:8.2%}  {' '.join(key)}")
    if ratios:
        lower = sum(ratio < 1 for ratio in ratios)
        print(
            f"{len(ratios)} cases: median ratio {statistics.median(ratios):.2f}, lower in {lower}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
