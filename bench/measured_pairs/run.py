"""Predict changes of kernels that were measured in public, and say which directions are right.

    python bench/measured_pairs/run.py [--folder build/measured-pairs]

Each release is installed into a folder of its own, without its dependencies. No GPU is needed.
"""

import argparse
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from roofwatch.ci.static.comparison import CodeEvidence, judge_static
from roofwatch.collector.runs.run_plan import RunPlan
from roofwatch.collector.runs.static_compiler import analyse_suite
from roofwatch.configuration.arguments import suite_source
from roofwatch.measurement.toolchains import find_toolchain
from roofwatch.model.results import StaticFacts
from roofwatch.model.verdict import Verdict

HERE = Path(__file__).parent
FASTER = frozenset({Verdict.PREDICTED_FASTER, Verdict.IMPROVED})
SLOWER = frozenset({Verdict.PREDICTED_SLOWER, Verdict.REGRESSED})
NEITHER: frozenset[Verdict] = frozenset({Verdict.UNCHANGED})
SGLANG = "sglang==0.5.17"


@dataclass(frozen=True)
class MeasuredSide:
    """How one side of a pair is compiled."""

    implementation: str = "triton"
    requirement: str | None = None
    """Of the library that has the kernel; None for those of this folder."""
    triton: str | None = None
    """A release; None for the installed one."""

    def __str__(self) -> str:
        parts = [self.requirement, self.triton and f"Triton {self.triton}"]
        if self.implementation != "triton":
            parts.append(self.implementation)
        return ", ".join(part for part in parts if part) or "as it was"


@dataclass(frozen=True)
class MeasuredPair:
    """Two sides of one kernel, and what was measured."""

    file: str
    kernel: str
    target: str
    base: MeasuredSide
    head: MeasuredSide
    expected: frozenset[Verdict]
    measured: str
    direction: str = "fwd"


def liger(version: str) -> MeasuredSide:
    return MeasuredSide(requirement=f"liger-kernel=={version}")


def sglang(implementation: str = "triton", triton: str | None = None) -> MeasuredSide:
    return MeasuredSide(implementation, requirement=SGLANG, triton=triton)


PAIRS = (
    MeasuredPair(
        file="bench_liger.py",
        kernel="layer_norm",
        direction="bwd",
        target="sm_80",
        base=liger("0.6.3"),
        head=liger("0.6.4"),
        expected=FASTER,
        measured="5 to 12 times faster on an A100 (Liger-Kernel #945)",
    ),
    MeasuredPair(
        file="bench_liger.py",
        kernel="layer_norm",
        direction="bwd",
        target="sm_80",
        base=liger("0.6.4"),
        head=liger("0.6.3"),
        expected=SLOWER,
        measured="the same, reversed",
    ),
    MeasuredPair(
        file="bench_liger.py",
        kernel="cross_entropy",
        target="sm_90",
        base=liger("0.8.0"),
        head=liger("0.8.1"),
        expected=FASTER,
        measured="13.9 % faster on an H100 (Liger-Kernel #1266)",
    ),
    MeasuredPair(
        file="bench_liger.py",
        kernel="swiglu",
        direction="bwd",
        target="sm_90",
        base=liger("0.8.0"),
        head=liger("0.8.1"),
        expected=NEITHER,
        measured="1.00 times on an H100 (Liger-Kernel #1271)",
    ),
    MeasuredPair(
        file="bench_liger.py",
        kernel="layer_norm",
        target="sm_80",
        base=liger("0.6.3"),
        head=liger("0.6.4"),
        expected=NEITHER,
        measured="not changed",
    ),
    MeasuredPair(
        file="bench_liger.py",
        kernel="cross_entropy",
        target="sm_90",
        base=liger("0.6.3"),
        head=liger("0.6.4"),
        expected=NEITHER,
        measured="not changed",
    ),
    MeasuredPair(
        file="bench_kernels.py",
        kernel="softmax_grad",
        target="sm_90",
        base=MeasuredSide("rows_twice"),
        head=MeasuredSide("row"),
        expected=FASTER,
        measured="over 11 times faster on an H100 (tritonbench #975)",
    ),
    MeasuredPair(
        file="bench_kernels.py",
        kernel="softmax_grad",
        target="sm_100",
        base=MeasuredSide("rows_twice"),
        head=MeasuredSide("row"),
        expected=FASTER,
        measured="1.57 to 0.057 ms on a B200 (tritonbench #975)",
    ),
    MeasuredPair(
        file="bench_kernels.py",
        kernel="expert_grad",
        target="gfx942",
        base=MeasuredSide("k64", triton="3.7.1"),
        head=MeasuredSide("k64", triton="3.8.0"),
        expected=SLOWER,
        measured="1.68 to 9.12 ms on an MI300X (Primus-Turbo #471)",
    ),
    MeasuredPair(
        file="bench_kernels.py",
        kernel="expert_grad",
        target="gfx942",
        base=MeasuredSide("k64", triton="3.8.0"),
        head=MeasuredSide("k32", triton="3.8.0"),
        expected=FASTER,
        measured="its fix, a shorter tile (Primus-Turbo #471)",
    ),
    MeasuredPair(
        file="bench_kernels.py",
        kernel="wide_attention",
        target="gfx942",
        base=MeasuredSide("m16_n32_w4"),
        head=MeasuredSide("m128_n16_w4"),
        expected=SLOWER,
        measured="43.6 to 170.6 ms on an MI325X (aiter #5063)",
    ),
    MeasuredPair(
        file="bench_kernels.py",
        kernel="wide_attention",
        target="gfx942",
        base=MeasuredSide("m128_n16_w4"),
        head=MeasuredSide("m128_n16_w8"),
        expected=FASTER,
        measured="170.6 to 18.9 ms on an MI325X (aiter #5063)",
    ),
    MeasuredPair(
        file="bench_kernels.py",
        kernel="wide_attention",
        target="gfx942",
        base=MeasuredSide("m16_n32_w4"),
        head=MeasuredSide("m128_n16_w8"),
        expected=FASTER,
        measured="43.6 to 18.9 ms on an MI325X (aiter #5063)",
    ),
    MeasuredPair(
        file="bench_kernels.py",
        kernel="wide_attention",
        target="gfx942",
        base=MeasuredSide("m16_n32_w4"),
        head=MeasuredSide("m64_n16_w4"),
        expected=FASTER,
        measured="44.7 to 26.0 ms on an MI325X (aiter #5649)",
    ),
    MeasuredPair(
        file="bench_sglang.py",
        kernel="extend_attention_without_options",
        target="gfx950",
        base=sglang(triton="3.6.0"),
        head=sglang(triton="3.7.1"),
        expected=SLOWER,
        measured="5.99 to 13.78 ms on an MI355X, with AMD's builds of Triton (sglang #34741)",
    ),
    MeasuredPair(
        file="bench_sglang.py",
        kernel="extend_attention_without_options",
        target="gfx950",
        base=sglang(triton="3.7.1"),
        head=sglang("n32", triton="3.7.1"),
        expected=FASTER,
        measured="its fix, a shorter tile (sglang #34741)",
    ),
    MeasuredPair(
        file="bench_sglang.py",
        kernel="extend_attention_64",
        target="gfx950",
        base=sglang(),
        head=sglang("m128"),
        expected=FASTER,
        measured="47 % less on an MI350X (sglang #34461)",
    ),
    MeasuredPair(
        file="bench_sglang.py",
        kernel="extend_attention_128",
        target="gfx950",
        base=sglang(),
        head=sglang("m128"),
        expected=FASTER,
        measured="32 % less on an MI350X (sglang #34461)",
    ),
    MeasuredPair(
        file="bench_sglang.py",
        kernel="extend_attention_256",
        target="gfx950",
        base=sglang(),
        head=sglang("m128"),
        expected=FASTER,
        measured="36 % less on an MI350X (sglang #27793)",
    ),
    MeasuredPair(
        file="bench_sglang.py",
        kernel="extend_attention_256",
        target="gfx950",
        base=sglang("m128"),
        head=sglang("n128"),
        expected=SLOWER,
        measured="19 % more on an MI350X (sglang #27793)",
    ),
    MeasuredPair(
        file="bench_sglang.py",
        kernel="extend_attention_256",
        target="gfx950",
        base=sglang("m128"),
        head=sglang("m256"),
        expected=SLOWER,
        measured="2 times slower, spills, on an MI350X (sglang #27793)",
    ),
)


def install(requirement: str, folder: Path) -> Path:
    """Install a release into a folder of its own, once."""
    packages = (folder / requirement.partition("==")[2]).resolve()
    if not packages.exists():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target"]
        subprocess.run([*pip, str(packages), requirement], check=True)
    return packages


@contextmanager
def import_path(packages: Path) -> Iterator[None]:
    """Let the processes that compile import a library, beside another release of Triton."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(packages)
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


@cache
def compiled(
    file: str,
    target: str,
    requirement: str | None,
    triton: str | None,
    folder: Path,
) -> tuple[StaticFacts, ...]:
    """Compile all pairs of a file for a target, with one release and one compiler."""
    source = suite_source(HERE / file)
    pairs = [pair for pair in PAIRS if (pair.file, pair.target) == (file, target)]
    kernels = tuple({pair.kernel for pair in pairs})
    plan = RunPlan(targets=(target,), kernels=kernels)
    toolchain = None
    if triton is not None:
        toolchain = find_toolchain(triton).packages
    library = Path()
    if requirement is not None:
        library = install(requirement, folder)
    with import_path(library):
        return analyse_suite(
            source=source,
            plan=plan,
            packages=toolchain,
            has_proofs=False,
        ).facts


def facts_of(pair: MeasuredPair, side: MeasuredSide, folder: Path) -> list[StaticFacts]:
    """Facts of one side of a pair, under a name that both sides share."""
    every = compiled(
        pair.file,
        pair.target,
        side.requirement,
        side.triton,
        folder,
    )
    selected: list[StaticFacts] = []
    for facts in every:
        kernel, _, case = facts.case_id.partition("/")
        if kernel != pair.kernel or not case.endswith(pair.direction):
            continue
        # both sides have the same name, so that they are compared
        if facts.implementation == side.implementation:
            selected.append(facts.model_copy(update={"implementation": "triton"}))
    return selected


def verdict_of(pair: MeasuredPair, folder: Path) -> tuple[Verdict, float]:
    """Return the verdict on the call's functions, and the predicted ratio of their times."""
    base = facts_of(pair, pair.base, folder)
    head = facts_of(pair, pair.head, folder)
    assert base, pair
    assert head, pair
    ratio = 1.0
    for change in judge_static(base, head).changes:
        evidence = change.evidence
        log_ratio = change.log_ratio
        # without a prediction of times, the change of a size has to do
        if isinstance(evidence, CodeEvidence) and evidence.prediction is not None:
            log_ratio = evidence.prediction.log_ratio
        ratio = math.exp(log_ratio)
        # the first change that decides is the worst one
        if change.verdict in FASTER | SLOWER:
            return change.verdict, ratio
    return Verdict.UNCHANGED, ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("build/measured-pairs"))
    options = parser.parse_args()
    right_count = 0
    print("| kernel | base | head | GPU | measured | predicted | |\n|---|---|---|---|---|---|---|")
    for pair in PAIRS:
        verdict, ratio = verdict_of(pair, options.folder)
        is_right = verdict in pair.expected
        right_count += is_right
        cells = [
            f"{pair.kernel} {pair.direction}",
            str(pair.base),
            str(pair.head),
            pair.target,
            pair.measured,
            f"{verdict}, time × {ratio:.2f}",
            "right" if is_right else "wrong",
        ]
        # compiling a pair takes a while, so each is printed at once
        print(f"| {' | '.join(cells)} |", flush=True)
    print(f"\n{right_count} of {len(PAIRS)} right")


if __name__ == "__main__":
    main()
