"""What a machine with a GPU is asked for, in one command: records of real runs, and how far its timers agree.

    python bench/gpu_records.py FOLDER [--device cuda] [--preset quick] [KERNEL ...]

Needs what measuring needs and nothing else. Into the folder go `quick-1.json.gz` and `quick-2.json.gz`, two runs of
one commit, with the counters of Nsight Compute in the first where it is installed; `timer-NAME.json.gz`, the same cases
by each timer that works there, with a hot cache, which all of them offer; and `README.md`, what they say of each other.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from collector.errors import CollectorError, TimerError
from collector.measurement import CacheState, Measurement, Timer
from collector.metrics import format_ns
from collector.nursery import Nursery
from collector.record import RunRecord
from collector.run import Progress, collect_run
from collector.run_plan import RunPlan
from collector.sampling import EFFORTS, Preset
from roofwatch.arguments import suite_at

KERNELS = ("empty_launch", "rms_norm", "softmax", "swiglu", "matmul", "attention")
_COUNTED = "softmax"

Subject = tuple[str, str]


def measure(folder: Path, kernels: Sequence[str], device: str, preset: Preset) -> None:
    """Measure all of it, and write each record as soon as it is there."""
    for number in (1, 2):
        _write(_run(kernels, device, preset), folder / f"quick-{number}.json.gz")
    for timer in [Timer.PERF_COUNTER] if device == "cpu" else [Timer.CUPTI, Timer.CUDA_GRAPH, Timer.CUDA_EVENT]:
        try:
            _write(_run(kernels, device, preset, timer), folder / f"timer-{timer}.json.gz")
        except TimerError as error:
            sys.stderr.write(f"{timer}: {error}\n")
    if device != "cpu":
        words = ["ncu", _COUNTED, "--record", str(folder / "quick-1.json.gz")]
        subprocess.run([sys.executable, "-m", "roofwatch", *words], check=False)


def _run(kernels: Sequence[str], device: str, preset: Preset, timer: Timer | None = None) -> RunRecord:
    effort = EFFORTS[preset]
    plan = RunPlan(
        kernels=tuple(kernels),
        device=device,
        targets=(),
        timer=timer,
        cache=None if timer is None else CacheState.HOT,
        block_count=effort.block_count,
        sampling=effort.sampling,
    )

    def say(progress: Progress) -> None:
        sys.stderr.write(f"{progress.done}/{progress.total} {progress.text}\n")

    with Nursery() as nursery:
        return collect_run(suite_at(None, "roofwatch"), plan, say, nursery=nursery)


def _write(record: RunRecord, file: Path) -> None:
    record.write(file)
    sys.stderr.write(f"written: {file}\n")


# --- what they say


def page(first: RunRecord, second: RunRecord, by_timer: Mapping[Timer, RunRecord]) -> str:
    """The page beside the records, as Markdown."""
    machine = first.environment
    versions = f"Driver {machine.driver_version}, torch {machine.torch_version}, triton {machine.triton_version}"
    lines = chain(
        [f"# {machine.device_name}", ""],
        [f"{versions}, roofwatch {first.harness_version}; commit {first.commit.sha[:12]}.", ""],
        ["## Two runs of one commit", ""],
        agreement(first, second),
        ["", "## By each timer", ""],
        cross_check(by_timer),
    )
    return "\n".join(lines) + "\n"


def agreement(first: RunRecord, second: RunRecord) -> Iterator[str]:
    """How far the medians of two runs lie apart, beside the noise floor that the runs' own blocks show: how far the
    medians of the blocks of one run lie apart, in the run where they do more.
    """
    before, after = _timed(first), _timed(second)
    yield "| case | implementation | first | second | apart | noise floor | agree |"
    yield "|---|---|--:|--:|--:|--:|---|"
    agreeing = 0
    both = [subject for subject in before if subject in after]
    for subject in both:
        one, other = before[subject], after[subject]
        apart = abs(_median(other) / _median(one) - 1)
        floor = max(_spread(one), _spread(other))
        agreeing += apart <= floor
        cells = [*subject, format_ns(_median(one)), format_ns(_median(other)), f"{apart:.2%}", f"{floor:.2%}"]
        yield f"| {' | '.join(cells)} | {'yes' if apart <= floor else 'no'} |"
    yield ""
    yield f"{agreeing} of {len(both)} agree within the noise floor."


def cross_check(by_timer: Mapping[Timer, RunRecord]) -> Iterator[str]:
    """The median by each timer, and how far the highest lies above the lowest."""
    timed = {timer: _timed(record) for timer, record in by_timer.items()}
    yield f"| case | implementation | {' | '.join(timed)} | apart |"
    yield f"|---|---|{'--:|' * (len(timed) + 1)}"
    for subject in dict.fromkeys(chain.from_iterable(timed.values())):
        medians = {timer: _median(found[subject]) for timer, found in timed.items() if subject in found}
        texts = [format_ns(medians[timer]) if timer in medians else "" for timer in timed]
        apart = f"{max(medians.values()) / min(medians.values()) - 1:.1%}" if len(medians) > 1 else ""
        yield f"| {subject[0]} | {subject[1]} | {' | '.join(texts)} | {apart} |"


def _timed(record: RunRecord) -> dict[Subject, Measurement]:
    return {(each.case_id, each.implementation): each for each in record.measurements if each.blocks}


def _median(measurement: Measurement) -> float:
    return statistics.median(measurement.samples_ns)


def _spread(measurement: Measurement) -> float:
    medians = [block.median_ns for block in measurement.blocks]
    return max(medians) / min(medians) - 1


def _read(files: Iterable[Path]) -> dict[Timer, RunRecord]:
    return {Timer(file.name.removeprefix("timer-").split(".")[0]): RunRecord.read(file) for file in files}


def main() -> int:
    """Measure, and write the page; 2 where nothing can be measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("kernels", nargs="*", default=KERNELS)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--preset", type=Preset, choices=list(Preset), default=Preset.QUICK)
    asked = parser.parse_intermixed_args()
    try:
        measure(asked.folder, asked.kernels, asked.device, asked.preset)
    except CollectorError as error:
        sys.stderr.write(f"{error}\nthis needs a GPU that torch sees; --device cpu tries it out\n")
        return 2
    first, second = (RunRecord.read(asked.folder / f"quick-{number}.json.gz") for number in (1, 2))
    by_timer = _read(sorted(asked.folder.glob("timer-*.json.gz")))
    (asked.folder / "README.md").write_text(page(first, second, by_timer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
