"""Rehearse the GPU evidence on a virtual clock: how long each step takes, by what it would do.

    python -m bench.gpu_rehearsal

Each measuring step is counted: processes that start, launches that are compiled, results that are
checked, numbers that are drawn, and blocks that are timed. The rates below are estimates for an
H200 with 16 cores; on a GPU, compare them with what the steps took and correct them. Exit status 1:
the plan, one of its steps or the first result takes too long.
"""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path

from bench.gpu_contact import LAUNCH_COUNT, TIMER_COUNT
from bench.gpu_plan import FIRST_RESULT, EvidenceStep, steps
from bench.gpu_planted import PLANTED_CASE_COUNT
from roofwatch.collector.jobs.kernel_info import describe_kernel
from roofwatch.collector.runs.case_run import CaseRun, select
from roofwatch.collector.runs.run_plan import RunPlan
from roofwatch.kernels.registry import suite
from roofwatch.model.timing_method import EFFORTS, Preset
from roofwatch.model.worker_protocol import SuiteInfo

MAX_PLAN_S = 25 * 60
MAX_STEP_S = 9 * 60
MAX_FIRST_RESULT_S = 60
"""Until one launch is counted by `ncu`, and everything before it is written."""
WHOLE_SUITE = "quick"
"""Name of the step that measures every bundled kernel."""
_START_S = 15.0
"""Of a command: import torch, load the suite, find a timer, measure the ceilings."""
_FRESH_PROCESS_S = 5.0
"""Of a block in a new process: load torch and the suite, make a context."""
_TRITON_COMPILE_S = 1.5
_TORCH_COMPILE_S = 8.0
"""Of one case: Inductor traces, generates and compiles its kernels."""
_TRITON_AT_ONCE = 16
_TORCH_AT_ONCE = 8
"""Processes that compile before anything is launched."""
_TORCH_CACHED_S = 2.0
"""Of one case whose graph is in the cache: it is traced again, and its code is loaded."""
_REFERENCE_S = 0.6
"""Of one case: its reference in float64, without drawing its inputs."""
_CHECK_S = 0.4
"""Of one result: it is computed twice, and compared with the reference."""
_DRAWN_BYTES_PER_S = 50e9
_DRAW_S = 0.03
"""Of one set of inputs on the CPU: of a tensor, 0.007 s for its two draws, and 0.004 s to start
the operations that make half a billion elements of them."""
_OVERHEAD_OF_BLOCK_S = 0.1
_COUNTERS_S = 45.0
"""Of one case: `ncu` replays a launch some 40 times, in a process of its own."""
_FIRST_COUNTERS_S = 2 * _FRESH_PROCESS_S + 10.0
"""Of one launch: the command and its target start, `ncu` attaches, and counts in one pass."""
_TIMER_S = 0.5
"""Of one launch by one timer, with its first use."""
_GPU_TEST_S = 0.7
_TEST_GROUP_S = 10.0
_FIXED_S = {
    "contact": _START_S + LAUNCH_COUNT * TIMER_COUNT * _TIMER_S,
    "counters-first": _FIRST_COUNTERS_S,
    "submit": 60.0,
}


@dataclass(frozen=True)
class Rehearsal:
    """What a step does, and how long that takes."""

    name: str
    seconds: float
    limit_s: float
    process_count: int = 1
    compile_count: int = 0
    check_count: int = 0
    draw_count: int = 0
    """How often inputs are made."""
    drawn_bytes: float = 0.0
    block_count: int = 0
    parts_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds by what they are spent on; empty where nothing is counted."""

    @property
    def fits(self) -> bool:
        return self.seconds <= min(self.limit_s, MAX_STEP_S)


@cache
def _suite() -> SuiteInfo:
    kernels = tuple(describe_kernel(spec, None) for spec in suite())
    return SuiteInfo(device="cuda", kernels=kernels)


def rehearse(step: EvidenceStep, results: Path) -> Rehearsal:
    """Count what a step would do.

    Args:
        step: Of the plan.
        results: Folder where the step may write suites that it measures.
    """
    # These steps do not depend on a suite.
    if step.name in _FIXED_S:
        return Rehearsal(name=step.name, seconds=_FIXED_S[step.name], limit_s=step.limit_s)
    if step.name.startswith("counters"):
        return Rehearsal(name=step.name, seconds=_COUNTERS_S, limit_s=step.limit_s)
    if step.test_count:
        seconds = _TEST_GROUP_S + step.test_count * _GPU_TEST_S
        return Rehearsal(name=step.name, seconds=seconds, limit_s=step.limit_s)
    words = step.command(results)
    # Before that word stands the interpreter with its options.
    words = words[words.index("roofwatch") + 1 :]
    preset = Preset(_values(words, "--preset")[0])
    if words[0] == "ab":
        return _pairs(step, preset)
    kernels = tuple(_values(words, "-k"))
    plan = RunPlan(
        device="cuda",
        kernels=kernels or RunPlan.kernels,
        implementations=tuple(_values(words, "-i")) or None,
    )
    blocks = _values(words, "--blocks")
    blocks_each = EFFORTS[preset].block_count
    if blocks:
        blocks_each = int(blocks[0])
    return _measured(
        step=step,
        runs=select(_suite(), plan),
        preset=preset,
        blocks_each=blocks_each,
        # A calibration repeats whole runs, each in new processes.
        has_fresh_processes=words[0] == "calibrate",
    )


def _measured(
    step: EvidenceStep,
    runs: Sequence[CaseRun],
    preset: Preset,
    *,
    blocks_each: int,
    has_fresh_processes: bool,
) -> Rehearsal:
    """What a step asks of the GPU, and how long the plan says it takes."""
    block_count = len(runs) * blocks_each
    process_count = 1
    if has_fresh_processes:
        process_count += blocks_each
    torch_compile_count = sum(run.implementation.name == "compile" for run in runs)
    triton_count = sum(run.implementation.language in ("triton", "cuda") for run in runs)
    # implementations of a case are checked with the same inputs; each block makes its own
    checked_cases = {run.case.case_id: run.case for run in runs}.values()
    draw_count = len(checked_cases) + block_count
    drawn_bytes = sum(case.memory_bytes or 0.0 for case in checked_cases)
    drawn_bytes += blocks_each * sum(run.case.memory_bytes or 0.0 for run in runs)
    parts_s = {
        "processes": _START_S + (process_count - 1) * _FRESH_PROCESS_S,
        "torch.compile": torch_compile_count * _TORCH_COMPILE_S / _TORCH_AT_ONCE,
        "torch.compile, again from its cache": torch_compile_count * _TORCH_CACHED_S,
        "Triton and CUDA C++": triton_count * _TRITON_COMPILE_S / _TRITON_AT_ONCE,
        "references": len(checked_cases) * _REFERENCE_S,
        "checks": len(runs) * _CHECK_S,
        "inputs": draw_count * _DRAW_S + drawn_bytes / _DRAWN_BYTES_PER_S,
        "blocks": block_count * _block_s(preset),
    }
    return Rehearsal(
        name=step.name,
        seconds=sum(parts_s.values()),
        limit_s=step.limit_s,
        process_count=process_count,
        compile_count=torch_compile_count + triton_count,
        check_count=len(runs),
        draw_count=draw_count,
        drawn_bytes=drawn_bytes,
        block_count=block_count,
        parts_s=parts_s,
    )


def _pairs(step: EvidenceStep, preset: Preset) -> Rehearsal:
    """A planted slowdown: two commits of one suite, a new process for each block and side."""
    blocks_each = EFFORTS[preset].block_count
    block_count = 2 * PLANTED_CASE_COUNT * blocks_each
    process_count = 1 + 2 * blocks_each
    seconds = (
        _START_S
        + process_count * _FRESH_PROCESS_S
        # sums of four million numbers are checked in a fraction of the usual time
        + 2 * PLANTED_CASE_COUNT * (_REFERENCE_S + _CHECK_S) / 4
        + block_count * _block_s(preset)
    )
    return Rehearsal(
        name=step.name,
        seconds=seconds,
        limit_s=step.limit_s,
        process_count=process_count,
        check_count=2 * PLANTED_CASE_COUNT,
        block_count=block_count,
    )


def _block_s(preset: Preset) -> float:
    """A block ends at its patience if the interval is narrow by then, which it is on a GPU."""
    sampling = EFFORTS[preset].sampling
    timed_ms = sampling.patience_ms or sampling.budget_ms
    return (sampling.warmup_ms + timed_ms) / 1e3 + _OVERHEAD_OF_BLOCK_S


def _values(words: Sequence[str], option: str) -> list[str]:
    """Values of an option of a command line, in order."""
    return [value for word, value in pairwise(words) if word == option]


def until_first_result_s(rehearsals: Sequence[Rehearsal]) -> float:
    """Seconds from the start of the plan to the end of the last step of the first result."""
    names = [rehearsal.name for rehearsal in rehearsals]
    step_count = 1 + max(names.index(name) for name in FIRST_RESULT)
    return sum(rehearsal.seconds for rehearsal in rehearsals[:step_count])


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        all_steps = steps("cuda")
        # only what the plan promises has to fit
        rehearsals = [rehearse(step, Path(folder)) for step in all_steps if not step.is_extra]
        whole_suite = next(
            rehearse(step, Path(folder)) for step in all_steps if step.name == WHOLE_SUITE
        )
    print(
        f"{'step':<28}{'s':>6}{'limit':>7}{'compiled':>10}{'checked':>9}"
        f"{'drawn':>7}{'GB':>7}{'blocks':>8}"
    )
    for rehearsal in rehearsals:
        print(_row(rehearsal))
    total_s = sum(rehearsal.seconds for rehearsal in rehearsals)
    print(f"{'all':<28}{total_s:>6.0f}{MAX_PLAN_S:>7}")
    print()
    print("the whole suite, if time is left:")
    print(_row(whole_suite))
    for name, seconds in whole_suite.parts_s.items():
        print(f"  {name:<34}{seconds:>6.0f}")
    late = [rehearsal.name for rehearsal in rehearsals if not rehearsal.fits]
    first_result_s = until_first_result_s(rehearsals)
    print()
    print(f"first result, with one launch under ncu: {first_result_s:.0f} s")
    if first_result_s > MAX_FIRST_RESULT_S:
        late.append("first result")
    if late:
        print(f"too long: {', '.join(late)}", file=sys.stderr)
    if late or total_s > MAX_PLAN_S:
        return 1
    return 0


def _row(rehearsal: Rehearsal) -> str:
    """One line of the table, with columns of fixed width."""
    return (
        f"{rehearsal.name:<28}{rehearsal.seconds:>6.0f}{rehearsal.limit_s:>7.0f}"
        f"{rehearsal.compile_count:>10}{rehearsal.check_count:>9}"
        f"{rehearsal.draw_count:>7}{rehearsal.drawn_bytes / 1e9:>7.0f}{rehearsal.block_count:>8}"
    )


if __name__ == "__main__":
    sys.exit(main())
