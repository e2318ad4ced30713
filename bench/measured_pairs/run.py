"""Predict changes of kernels that were measured in public, and say which directions are right.

    python bench/measured_pairs/run.py [--folder build/measured-pairs]

Each release is installed into a folder of its own, without its dependencies. No GPU is needed.
"""

import argparse
import math
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from roofwatch.arguments import suite_source
from roofwatch.ci.static.comparison import CodeEvidence, judge_static
from roofwatch.collector.runs.run_plan import RunPlan
from roofwatch.collector.runs.static_compiler import analyse_suite
from roofwatch.model.results import StaticFacts
from roofwatch.model.verdict import Verdict

HERE = Path(__file__).parent
FASTER = frozenset({Verdict.PREDICTED_FASTER, Verdict.IMPROVED})
SLOWER = frozenset({Verdict.PREDICTED_SLOWER, Verdict.REGRESSED})
NEITHER: frozenset[Verdict] = frozenset({Verdict.UNCHANGED})


@dataclass(frozen=True)
class ReleasePair:
    """One kernel in two releases of liger-kernel."""

    case: str
    """Start of the case id, and its direction."""
    direction: str
    base: str
    head: str
    target: str
    expected: frozenset[Verdict]
    measured: str


PAIRS = (
    ReleasePair(
        case="layer_norm",
        direction="bwd",
        base="0.6.3",
        head="0.6.4",
        target="sm_80",
        expected=FASTER,
        measured="5 to 12 times faster on an A100 (#945)",
    ),
    ReleasePair(
        case="layer_norm",
        direction="bwd",
        base="0.6.4",
        head="0.6.3",
        target="sm_80",
        expected=SLOWER,
        measured="the same, reversed",
    ),
    ReleasePair(
        case="cross_entropy",
        direction="fwd",
        base="0.8.0",
        head="0.8.1",
        target="sm_90",
        expected=FASTER,
        measured="13.9 % faster on an H100 (#1266)",
    ),
    ReleasePair(
        case="swiglu",
        direction="bwd",
        base="0.8.0",
        head="0.8.1",
        target="sm_90",
        expected=NEITHER,
        measured="1.00 times on an H100 (#1271)",
    ),
    ReleasePair(
        case="layer_norm",
        direction="fwd",
        base="0.6.3",
        head="0.6.4",
        target="sm_80",
        expected=NEITHER,
        measured="not changed",
    ),
    ReleasePair(
        case="cross_entropy",
        direction="fwd",
        base="0.6.3",
        head="0.6.4",
        target="sm_90",
        expected=NEITHER,
        measured="not changed",
    ),
)


def install(version: str, folder: Path) -> Path:
    packages = (folder / version).resolve()
    if not packages.exists():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target"]
        subprocess.run([*pip, str(packages), f"liger-kernel=={version}"], check=True)
    return packages


@cache
def compiled(version: str, target: str, folder: Path) -> tuple[StaticFacts, ...]:
    source = suite_source(HERE / "bench_liger.py")
    plan = RunPlan(targets=(target,))
    packages = install(version, folder)
    return analyse_suite(source, plan, packages=packages, has_proofs=False).facts


def _facts_of(pair: ReleasePair, version: str, folder: Path) -> list[StaticFacts]:
    return [
        facts
        for facts in compiled(version, pair.target, folder)
        if facts.case_id.startswith(pair.case) and facts.case_id.endswith(pair.direction)
    ]


def verdict_of(pair: ReleasePair, folder: Path) -> tuple[Verdict, float]:
    """Return the verdict on the call's functions, and the predicted ratio of their times."""
    base = _facts_of(pair, pair.base, folder)
    head = _facts_of(pair, pair.head, folder)
    changes = judge_static(base, head).changes
    for change in changes:
        # the first change that decides is the worst one
        if change.verdict in FASTER | SLOWER:
            evidence = change.evidence
            prediction = evidence.prediction if isinstance(evidence, CodeEvidence) else None
            ratio = change.log_ratio if prediction is None else prediction.log_ratio
            return change.verdict, math.exp(ratio)
    return Verdict.UNCHANGED, 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("build/measured-pairs"))
    options = parser.parse_args()
    right_count = 0
    print("| kernel | releases | GPU | measured | predicted | |\n|---|---|---|---|---|---|")
    for pair in PAIRS:
        verdict, ratio = verdict_of(pair, options.folder)
        is_right = verdict in pair.expected
        right_count += is_right
        print(
            f"| {pair.case} {pair.direction} | {pair.base} to {pair.head} | {pair.target} "
            f"| {pair.measured} | {verdict}, time × {ratio:.2f} "
            f"| {'right' if is_right else 'wrong'} |"
        )
    print(f"\n{right_count} of {len(PAIRS)} right")


if __name__ == "__main__":
    main()
