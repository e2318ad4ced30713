"""What a machine with a GPU is asked for, in one command: records of real runs, and how far its timers agree.

    python bench/gpu_records.py FOLDER [--device cuda] [--preset quick] [KERNEL ...]

Needs what measuring needs, and NumPy for the noise floor. Into the folder go `quick-1.json.gz` and `quick-2.json.gz`,
two runs of one commit, with the counters of Nsight Compute in the first where it is installed; `calibration/`, what
`roofwatch calibrate` says of the same cases; `timer-NAME.json.gz`, these by each timer that works there, with a hot
cache, which all of them offer; and `README.md`, what they say of each other. Status 1: some of it could not be had.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from roofwatch.arguments import suite_at
from roofwatch.collector.errors import CollectorError, SuiteError, TimerError
from roofwatch.collector.profiling.ncu_count import find_ncu
from roofwatch.collector.record.measurement import CacheState, Measurement, Timer
from roofwatch.collector.record.metrics import format_ns
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.run import Progress, collect_run
from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.timing.method import EFFORTS, Preset
from roofwatch.collector.workers.fork_server import ForkServer

if TYPE_CHECKING:  # brings NumPy along
    from roofwatch.ci.ab.noise_floor import NoiseFloor

KERNELS = ("empty_launch", "rms_norm", "softmax", "swiglu", "matmul", "attention")
_COUNTED = "softmax"

Subject = tuple[str, str]


def measure(folder: Path, kernels: Sequence[str], device: str, preset: Preset) -> list[str]:
    """Measure all of it, and write each record as soon as it is there.

    Returns:
        The commands that failed; what they would have brought is not there.

    Raises:
        CollectorError: nothing can be measured.
    """
    failed: list[str] = []
    for number in (1, 2):
        _write(_run(kernels, device, preset), folder / f"quick-{number}.json.gz")
    for timer in [Timer.PERF_COUNTER] if device == "cpu" else [Timer.CUPTI, Timer.CUDA_GRAPH, Timer.CUDA_EVENT]:
        try:
            _write(_run(kernels, device, preset, timer), folder / f"timer-{timer}.json.gz")
        except TimerError as error:
            sys.stderr.write(f"{timer}: {error}\n")
    _floor_file(folder).unlink(missing_ok=True)  # that of another day says nothing about today's runs
    failed += _failed(calibrating(folder, kernels, device, preset))
    if device != "cpu" and _COUNTED in kernels:
        try:
            find_ncu()
        except CollectorError as error:
            sys.stderr.write(f"no counters: {error}\n")
        else:
            file = folder / "quick-1.json.gz"
            failed += _failed(counting(RunRecord.read(file), file))
    return failed


def calibrating(folder: Path, kernels: Sequence[str], device: str, preset: Preset) -> list[str]:
    """The command that measures the noise floor of the same cases, sampled as the runs are."""
    words = ["calibrate", "--device", device, "--preset", preset.value, "--budget", "0", "--discard"]
    return [*words, "--output", str(_floor_file(folder).parent), *(word for name in kernels for word in ("-k", name))]


def counting(record: RunRecord, file: Path) -> list[str]:
    """The command that adds the counters of one case to the record that holds it: the first that was timed of a kernel.

    Raises:
        SuiteError: none was.
    """
    own = {case.case_id for case in record.cases if case.kernel == _COUNTED}
    case_id = next((case_id for case_id, _ in _timed(record) if case_id in own), None)
    if case_id is None:
        raise SuiteError(f"{_COUNTED}: no case of it was timed, so there is none to count")
    return ["ncu", case_id, "--record", str(file)]


def _failed(words: Sequence[str]) -> list[str]:
    """The command, if it failed; it says why itself."""
    status = subprocess.run([sys.executable, "-m", "roofwatch", *words], check=False).returncode
    return [f"roofwatch {' '.join(words)}: status {status}"] if status else []


def _run(kernels: Sequence[str], device: str, preset: Preset, timer: Timer | None = None) -> RunRecord:
    effort = EFFORTS[preset]
    plan = RunPlan(
        kernels=tuple(kernels),
        device=device,
        targets=(),
        timer=timer,
        cache=None if timer is None else CacheState.HOT,
        block_count=effort.block_count,
        has_fresh_processes=effort.has_fresh_processes,
        sampling=effort.sampling,
    )

    def say(progress: Progress) -> None:
        sys.stderr.write(f"{progress.done}/{progress.total} {progress.text}\n")

    with ForkServer() as fork_server:
        return collect_run(suite_at(None, "roofwatch"), plan, say, fork_server=fork_server)


def _write(record: RunRecord, file: Path) -> None:
    record.write(file)
    sys.stderr.write(f"written: {file}\n")


# --- what they say


def page(
    first: RunRecord, second: RunRecord, by_timer: Mapping[Timer, RunRecord], floor: NoiseFloor | None = None
) -> str:
    """The page beside the records, as Markdown; without the noise floor nobody can say whether two runs agree."""
    machine = first.environment
    versions = f"Driver {machine.driver_version}, torch {machine.torch_version}, triton {machine.triton_version}"
    lines = chain(
        [f"# {machine.device_name}", ""],
        [f"{versions}, roofwatch {first.harness_version}; commit {first.commit.sha[:12]}.", ""],
        ["## Two runs of one commit", ""],
        agreement(first, second, floor),
        ["", "## By each timer", ""],
        cross_check(by_timer),
    )
    return "\n".join(lines) + "\n"


def agreement(first: RunRecord, second: RunRecord, floor: NoiseFloor | None) -> Iterator[str]:
    """How far the medians of two runs lie apart, beside what a change must exceed on this runner to be told, by the
    noise floor that `roofwatch calibrate` states: a multiple of the deviation of one block.
    """
    before, after = _timed(first), _timed(second)
    limits = {} if floor is None else _limits(floor, after)
    yield "| case | implementation | first | second | apart | told from | agree |"
    yield "|---|---|--:|--:|--:|--:|---|"
    agreeing = 0
    both = [subject for subject in before if subject in after]
    for subject in both:
        one, other = before[subject], after[subject]
        apart = abs(_median(other) / _median(one) - 1)
        limit = limits.get(subject)
        agrees = None if limit is None else apart <= limit
        agreeing += agrees is True
        cells = [*subject, format_ns(_median(one)), format_ns(_median(other)), f"{apart:.2%}"]
        cells += ["unknown" if limit is None else f"{limit:.2%}", {None: "", True: "yes", False: "no"}[agrees]]
        yield f"| {' | '.join(cells)} |"
    known = sum(subject in limits for subject in both)
    yield ""
    yield f"{agreeing} of {known} agree within the noise floor of `roofwatch calibrate`; {len(both) - known} have none."


def _limits(floor: NoiseFloor, measured: Mapping[Subject, Measurement]) -> dict[Subject, float]:
    """What a change must exceed, of each case that the floor knows, without the practical threshold."""
    known = {subject for subject, one in measured.items() if any(case.applies_to(one) for case in floor.cases)}
    return {subject: floor.threshold(measured[subject], least=0.0) for subject in known}


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


def _read(files: Iterable[Path]) -> dict[Timer, RunRecord]:
    return {Timer(file.name.removeprefix("timer-").split(".")[0]): RunRecord.read(file) for file in files}


def _floor_file(folder: Path) -> Path:
    return folder / "calibration" / "noise_floor.json"


def _read_floor(file: Path) -> NoiseFloor:
    from roofwatch.ci.ab.noise_floor import NoiseFloor

    return NoiseFloor.parse(file.read_bytes())


def main() -> int:
    """Measure, and write the page; 1 where some of it failed, 2 where nothing can be measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("kernels", nargs="*", default=KERNELS)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--preset", type=Preset, choices=list(Preset), default=Preset.QUICK)
    asked = parser.parse_intermixed_args()
    try:
        failed = measure(asked.folder, asked.kernels, asked.device, asked.preset)
    except CollectorError as error:
        sys.stderr.write(f"{error}\nthis needs a GPU that torch sees; --device cpu tries it out\n")
        return 2
    first, second = (RunRecord.read(asked.folder / f"quick-{number}.json.gz") for number in (1, 2))
    by_timer = _read(sorted(asked.folder.glob("timer-*.json.gz")))
    floor_file = _floor_file(asked.folder)
    floor = _read_floor(floor_file) if floor_file.exists() else None
    (asked.folder / "README.md").write_text(page(first, second, by_timer, floor))
    for command in failed:
        sys.stderr.write(f"failed: {command}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
