"""Pull requests in which nothing worth telling changed: how often any of their cases is told to have moved.

    python -m bench.null_pull_requests [--pulls N] [--cases N] [--blocks N]

Every case is a pair of so many blocks a side. Either nothing changed, or every case changed by the practical threshold
itself, up or down, the worst that is still not worth telling; then a quarter of the cases are 8 % slower, the rest at
the threshold. Prints the share of pull requests that tell a false move, and of the moves told the share that are
false. No times: the figures are the same on every machine.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.ab.compare import compare, control_false_discoveries
from roofwatch.ci.thresholds import Thresholds
from roofwatch.db.values import Verdict

_LIMITS = Thresholds()
_NOISE = 0.01
_SLOWER, _SLOWER_SHARE = 0.08, 0.25
_Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]
_NOISES: dict[str, _Draw] = {
    "normal": lambda rng, count: rng.standard_normal(count),
    "heavy tails (t, 2 degrees)": lambda rng, count: rng.standard_t(2, count),
    "one block in ten 10x as noisy": lambda rng, count: (
        rng.standard_normal(count) * np.where(rng.random(count) < 0.1, 10.0, 1.0)
    ),
    "every block of its own noise": lambda rng, count: rng.standard_normal(count) * np.exp(rng.standard_normal(count)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pulls", type=int, default=400)
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--blocks", type=int, default=8)
    arguments = parser.parse_args()
    edge = math.log1p(_LIMITS.relative_change)
    for name, draw in _NOISES.items():
        for what, size, moved_share in (
            ("nothing changed", 0.0, 0.0),
            ("all at the threshold", edge, 0.0),
            ("a quarter 8 % slower", edge, _SLOWER_SHARE),
        ):
            alarmed, false, told = 0, [], 0
            for seed in range(arguments.pulls):
                rng = np.random.default_rng(seed)
                wrong, right = judge(rng, draw, arguments.cases, arguments.blocks, size, moved_share)
                alarmed += wrong > 0
                told += right
                false.append(wrong / max(wrong + right, 1))
            print(
                f"{name:32}{what:22}{alarmed / arguments.pulls:6.1%} of pull requests tell a false move; "
                f"false share of moves told {np.mean(false):.1%}, {told / arguments.pulls:.1f} true ones told each",
                flush=True,
            )


def judge(
    rng: np.random.Generator, draw: _Draw, case_count: int, block_count: int, size: float, moved_share: float
) -> tuple[int, int]:
    """How many moves are told falsely, and how many truly."""
    moved_count = round(moved_share * case_count)
    changes = np.where(rng.random(case_count) < 0.5, -size, size)
    changes[:moved_count] = math.log1p(_SLOWER)
    comparisons = []
    for change in changes:
        base, head = np.exp(_NOISE * draw(rng, block_count)), np.exp(change + _NOISE * draw(rng, block_count))
        comparisons.append(compare(base[:, None], head[:, None], threshold=_LIMITS.relative_change))
    judged = control_false_discoveries(comparisons, _LIMITS.false_discovery_rate)
    is_told = [one.verdict in {Verdict.REGRESSED, Verdict.IMPROVED} for one in judged]
    return sum(is_told[moved_count:]), sum(is_told[:moved_count])


if __name__ == "__main__":
    main()
