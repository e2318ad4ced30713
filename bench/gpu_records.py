"""Measure the bundled suite on this machine's GPU: two runs, each timer, the noise floor and Nsight Compute counters.

    python bench/gpu_records.py FOLDER [--device cuda] [--preset quick] [KERNEL ...]

The folder receives `quick-1.json.gz` and `quick-2.json.gz`, two runs of one commit; `timer-NAME.json.gz` for each
timer, with a hot cache; `calibration/` from `roofwatch calibrate`; and `README.md`, which compares them. Exit status 1
means that something could not be measured.
"""

import argparse
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from roofwatch.arguments import suite_at
from roofwatch.ci.ab.noise_floor import NoiseFloor
from roofwatch.collector.errors import CollectorError, SuiteError, TimerError
from roofwatch.collector.profiling.ncu_count import find_ncu
from roofwatch.collector.record.measurement import CacheState, Measurement, Timer
from roofwatch.collector.record.metrics import format_ns
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.run import collect_run
from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.timing.method import EFFORTS, Preset
from roofwatch.collector.workers.fork_server import ForkServer

KERNELS = ("empty_launch", "rms_norm", "softmax", "swiglu", "matmul", "attention")
_COUNTED_KERNEL = "softmax"

Subject = tuple[str, str]


def measure(folder: Path, kernels: Sequence[str], device: str, preset: Preset) -> list[str]:
    """Measure everything, and write each record as soon as it is complete.

    Returns:
        Commands that failed.

    Raises:
        CollectorError: nothing can be measured.
    """
    for number in (1, 2):
        _collect(kernels, device, preset).write(folder / f"quick-{number}.json.gz")
    for timer in [Timer.PERF_COUNTER] if device == "cpu" else [Timer.CUPTI, Timer.CUDA_GRAPH, Timer.CUDA_EVENT]:
        try:
            _collect(kernels, device, preset, timer).write(folder / f"timer-{timer}.json.gz")
        except TimerError as error:
            sys.stderr.write(f"{timer}: {error}\n")
    (folder / "calibration" / "noise_floor.json").unlink(missing_ok=True)
    commands = [calibrate_command(folder, kernels, device, preset)]
    if device != "cpu" and _COUNTED_KERNEL in kernels:
        try:
            find_ncu()
        except CollectorError as error:
            sys.stderr.write(f"no counters: {error}\n")
        else:
            file = folder / "quick-1.json.gz"
            commands.append(count_command(RunRecord.read(file), file))
    return [
        f"roofwatch {' '.join(words)}"
        for words in commands
        if subprocess.run([sys.executable, "-m", "roofwatch", *words], check=False).returncode
    ]


def calibrate_command(folder: Path, kernels: Sequence[str], device: str, preset: Preset) -> list[str]:
    """The command that measures the noise floor of the same kernels with the same sampling."""
    words = ["calibrate", "--device", device, "--preset", preset.value, "--budget", "0", "--discard"]
    return [*words, "--output", str(folder / "calibration"), *(word for name in kernels for word in ("-k", name))]


def count_command(record: RunRecord, file: Path) -> list[str]:
    """The command that adds the counters of one case to its record.

    Raises:
        SuiteError: no case of the kernel was timed.
    """
    case_ids = {case.case_id for case in record.cases if case.kernel == _COUNTED_KERNEL}
    for case_id, _ in _timed(record):
        if case_id in case_ids:
            return ["ncu", case_id, "--record", str(file)]
    raise SuiteError(f"{_COUNTED_KERNEL}: no case was timed, so there is nothing to count")


def _collect(kernels: Sequence[str], device: str, preset: Preset, timer: Timer | None = None) -> RunRecord:
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
    with ForkServer() as fork_server:
        return collect_run(
            suite_at(None, "roofwatch"),
            plan,
            lambda progress: print(f"{progress.done}/{progress.total} {progress.text}", file=sys.stderr),
            fork_server=fork_server,
        )


def page(
    first: RunRecord, second: RunRecord, by_timer: Mapping[Timer, RunRecord], floor: NoiseFloor | None = None
) -> str:
    """Markdown that compares the records."""
    machine = first.environment
    versions = f"Driver {machine.driver_version}, torch {machine.torch_version}, triton {machine.triton_version}"
    lines = chain(
        [f"# {machine.device_name}", ""],
        [f"{versions}, roofwatch {first.harness_version}; commit {first.commit.sha[:12]}.", ""],
        ["## Two runs of one commit", "", *compare_runs(first, second, floor), ""],
        ["## Timers", "", *compare_timers(by_timer)],
    )
    return "\n".join(lines) + "\n"


def compare_runs(first: RunRecord, second: RunRecord, floor: NoiseFloor | None) -> Iterator[str]:
    """Difference of the medians of two runs, with the smallest change that the noise floor can detect."""
    before, after = _timed(first), _timed(second)
    yield "| case | implementation | first | second | difference | detectable | agree |"
    yield "|---|---|--:|--:|--:|--:|---|"
    agreements = []
    for subject in [subject for subject in before if subject in after]:
        medians_ns = [statistics.median(times[subject].samples_ns) for times in (before, after)]
        difference = abs(medians_ns[1] / medians_ns[0] - 1)
        limit = _detectable(floor, after[subject])
        agreements.append(None if limit is None else difference <= limit)
        cells = [*subject, *map(format_ns, medians_ns), f"{difference:.2%}"]
        cells += ["unknown" if limit is None else f"{limit:.2%}", {None: "", True: "yes", False: "no"}[agreements[-1]]]
        yield f"| {' | '.join(cells)} |"
    unknown = agreements.count(None)
    yield ""
    yield f"{agreements.count(True)} of {len(agreements) - unknown} agree within the noise floor; {unknown} have none."


def _detectable(floor: NoiseFloor | None, measured: Measurement) -> float | None:
    if floor is None or not any(case.applies_to(measured) for case in floor.cases):
        return None
    return floor.threshold(measured, least=0.0)


def compare_timers(by_timer: Mapping[Timer, RunRecord]) -> Iterator[str]:
    """Median by each timer, and the highest relative to the lowest."""
    timed = {timer: _timed(record) for timer, record in by_timer.items()}
    yield f"| case | implementation | {' | '.join(timed)} | difference |"
    yield f"|---|---|{'--:|' * (len(timed) + 1)}"
    for subject in dict.fromkeys(chain.from_iterable(timed.values())):
        medians_ns = {timer: statistics.median(t[subject].samples_ns) for timer, t in timed.items() if subject in t}
        texts = [format_ns(medians_ns[timer]) if timer in medians_ns else "" for timer in timed]
        difference = f"{max(medians_ns.values()) / min(medians_ns.values()) - 1:.1%}" if len(medians_ns) > 1 else ""
        yield f"| {subject[0]} | {subject[1]} | {' | '.join(texts)} | {difference} |"


def _timed(record: RunRecord) -> dict[Subject, Measurement]:
    return {(each.case_id, each.implementation): each for each in record.measurements if each.blocks}


def main() -> int:
    """Measure and write the page; 1 if something failed, 2 if nothing can be measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("kernels", nargs="*", default=KERNELS)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--preset", type=Preset, choices=list(Preset), default=Preset.QUICK)
    options = parser.parse_intermixed_args()
    folder: Path = options.folder
    try:
        failed = measure(folder, options.kernels, options.device, options.preset)
    except CollectorError as error:
        sys.stderr.write(f"{error}\nthis needs a GPU that torch sees; try it without one using --device cpu\n")
        return 2
    first, second = (RunRecord.read(folder / f"quick-{number}.json.gz") for number in (1, 2))
    files = sorted(folder.glob("timer-*.json.gz"))
    by_timer = {Timer(file.name.removeprefix("timer-").split(".")[0]): RunRecord.read(file) for file in files}
    floor_file = folder / "calibration" / "noise_floor.json"
    floor = NoiseFloor.parse(floor_file.read_bytes()) if floor_file.exists() else None
    (folder / "README.md").write_text(page(first, second, by_timer, floor))
    for command in failed:
        sys.stderr.write(f"failed: {command}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
