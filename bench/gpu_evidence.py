"""Collect evidence from this machine's GPU, step by step, and compare it with the targets.

    python -m bench.gpu_evidence FOLDER [--only STEP ...] [--seconds 540] [--device cuda]
                                 [--archive FILE]

Each step is a command with its own time limit that leaves a file in the folder; its output goes to
`STEP.log`. A step whose file exists is skipped, so the command can be repeated until everything is
there. A step that fails or reaches its limit does not stop the others, and the next call repeats it
after the steps that were not tried. The page, README.md, is written anew after each step. Exit
status 1: a step is missing; 2: there is no GPU.

An archive holds everything so far, for a machine whose files are lost between calls: it is written
anew after each step, and unpacked into an empty folder.
"""

import argparse
import json
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bench.gpu_page import SLOWDOWNS, TIMERS, page
from roofwatch.model.errors import CollectorError
from roofwatch.model.record import RunRecord

_STEP_SECONDS = 540
MAX_ARCHIVE_BYTES = 15 * 10**6
_TIMED = ("empty_launch", "memory_copy", "softmax", "matmul", "attention")
"""Kernels of all lengths, from an empty launch on, for the comparison of timers."""
_CALIBRATED = ("memory_copy", "softmax", "rms_norm", "matmul", "attention")
_WORKLOADS = (
    "transformer_inference",
    "transformer_training",
    "dit_training",
    "moe_inference",
    "llama_decode",
)
_COUNTED = ("matmul", "attention", "softmax", "memory_copy", "rms_norm", "w4a16_matmul")
_COUNTED_FIRST = 3
"""Kernels whose counters belong to the plan; those of the others are extras."""
PLANTED_CASE_COUNT = 20
_HEADLINES = (
    "memory_copy",
    "softmax",
    "rms_norm",
    "swiglu",
    "cross_entropy",
    "matmul",
    "attention",
    "paged_decode_attention",
    "w4a16_matmul",
    "grouped_gemm",
    "fp8_matmul_rowwise",
    "moe_topk_routing",
)
"""Kernels that are compared with torch and torch.compile before anything else."""
_ALONE = ("collector/device", "collector/timing")
"""Folders of tests that measure time, one at a time on one GPU."""
_TESTED = {
    "collector/device": 4,
    "collector/timing": 13,
    "collector": 22,
    "roofwatch": 2,
    "kernels/test_cuda.py": 35,
    "kernels/test_collectives.py": 4,
    "kernels/attention": 21,
    "kernels/gemm": 13,
    "kernels": 605,
}
"""Tests that need a GPU, those with the fewest and smallest kernels first, and about how many;
each has a report of its own.
"""
_TESTED_FIRST = 4
_MODULE = (sys.executable, "-m", "bench.gpu_evidence")
_PLANTED_SUITE = """
from roofwatch import KernelSpec, cases

planted_spec = KernelSpec(
    name="planted",
    family="memory",
    inputs=lambda case, make: {{"x": make.normal(int(case["n_elements"] * {factor}))}},
    reference=lambda x: x + 1,
    cases=cases(
        shapes=[{{"n_elements": {size} * number}} for number in range(1, {count} + 1)],
        tags=["quick", "small"],
    ),
    flop_count=lambda case: case["n_elements"],
    memory_bytes=lambda case: 2 * case["n_elements"] * case.itemsize,
)


@planted_spec.implementation("torch")
def planted(x):
    return x + 1
"""


@dataclass(frozen=True)
class EvidenceStep:
    """A command that leaves a file."""

    output: str
    command: Callable[[Path], list[str]]
    """Builds it from the folder of results."""
    limit_s: float = 240.0
    is_extra: bool = False
    """Done if time is left; not part of the plan that `bench.gpu_rehearsal` holds to 25 minutes."""
    test_count: int = 0

    @property
    def name(self) -> str:
        return Path(self.output).parts[0].partition(".")[0]


def _roofwatch(*words: str) -> list[str]:
    return [sys.executable, "-m", "roofwatch", *words]


def _kernels(names: Sequence[str]) -> list[str]:
    return [word for name in names for word in ("-k", name)]


def steps(device: str) -> list[EvidenceStep]:
    """All steps, the most valuable first."""
    measure = ["--device", device, "--preset", "quick"]
    if device == "cuda":
        # A machine that others use is better evidence than none.
        measure += ["--device-check", "warn"]
    survey = ["run", "--no-static", "--device", device, "--preset", "survey", "--resume"]
    counters = [
        EvidenceStep(f"counters-{kernel}.json", partial(_counters, kernel, "headlines.json.gz"), 90)
        for kernel in _COUNTED
    ]
    planted = [
        EvidenceStep(f"planted-{extra:.0%}.json", partial(_planted, extra, measure))
        for extra in SLOWDOWNS
    ]
    tests = [
        EvidenceStep(f"{_test_name(name)}.xml", partial(_tests, name), test_count=count)
        for name, count in _TESTED.items()
    ]
    calibrate = _calibration(measure)
    promised = [
        _written_by(
            "first.json.gz", [*survey, "-k", "memory_copy", "-k", "matmul", "-i", "torch"], 60
        ),
        EvidenceStep("peers.json", lambda _: [*_MODULE, "--peers", "--json"], 60),
        EvidenceStep("counters-first.json", partial(_counters, "memory_copy", "first.json.gz"), 60),
        _written_by("headlines.json.gz", [*survey, *_kernels(_HEADLINES)], 480),
        *counters[:_COUNTED_FIRST],
        *planted,
        EvidenceStep(
            "noise/noise_floor.json",
            lambda folder: _roofwatch(*calibrate, "-o", str(folder / "noise")),
            480,
        ),
        EvidenceStep("submit.json", partial(_submit, device), 120),
        *tests[:_TESTED_FIRST],
    ]
    extras = [
        *counters[_COUNTED_FIRST:],
        *_extra_steps(device, measure, survey),
        *tests[_TESTED_FIRST:],
    ]
    return promised + [replace(step, is_extra=True) for step in extras]


def _extra_steps(device: str, measure: Sequence[str], survey: Sequence[str]) -> list[EvidenceStep]:
    # Other timers need a GPU.
    timers = TIMERS if device == "cuda" else ("auto",)
    size = "quick" if device == "cuda" else "small"
    profile = ["run", "--no-static", "--profile", *_kernels(_WORKLOADS), "-t", size]
    profile += [*measure, "--resume"]
    return [
        *(
            EvidenceStep(f"timer-{timer}.json.gz", partial(_timer, timer, measure))
            for timer in timers
        ),
        _written_by("quick.json.gz", survey, 520),
        _written_by("workloads.json.gz", profile, 520),
        EvidenceStep(
            "bounds.json", lambda _: [sys.executable, "-m", "bench.kernel_bounds", "--json"]
        ),
    ]


def _calibration(measure: Sequence[str]) -> list[str]:
    # Budget 0: the number of blocks is what limits it.
    words = ["calibrate", *measure, *_kernels(_CALIBRATED), "-i", "triton"]
    return [*words, "--budget", "0", "--blocks", "6", "--resume"]


def _written_by(output: str, words: Sequence[str], limit_s: float) -> EvidenceStep:
    """A step whose command writes its file by itself."""
    return EvidenceStep(
        output,
        lambda folder: _roofwatch(*words, "-o", str(folder / output)),
        limit_s,
    )


def _test_name(tests: str) -> str:
    return "tests-" + tests.removesuffix(".py").replace("/", "-")


def _tests(tests: str, results: Path) -> list[str]:
    # each process keeps GPU memory of its own, up to 36 GB in a check of a quick case
    workers = "0" if tests in _ALONE else "2"
    report = results / f"{_test_name(tests)}.xml"
    options = ["-m", "gpu", "-o", "addopts=", "-n", workers, "-q", "-rfE", "--durations", "20"]
    pytest = [sys.executable, "-m", "pytest", f"tests/{tests}"]
    return [*pytest, *options, "--junitxml", str(report)]


def _timer(timer: str, measure: Sequence[str], results: Path) -> list[str]:
    words = ["run", "--no-static", "--timer", timer, "--cache", "hot", *measure, *_kernels(_TIMED)]
    return _roofwatch(*words, "--resume", "-o", str(results / f"timer-{timer}.json.gz"))


def _planted(extra: float, measure: Sequence[str], results: Path) -> list[str]:
    """Measure additions of several sizes at two commits; the second commit adds more numbers."""
    repository = results / f"planted-{extra:.0%}"
    _commit_suites(repository, (0.0, extra), is_large="cuda" in measure)
    words = [
        "ab",
        str(repository / "bench_planted.py"),
        "--base",
        "HEAD~1",
        "--budget",
        "0",
        "--resume",
    ]
    return _roofwatch(*words, *measure, "--json", "-o", str(repository / "records"))


def _submit(device: str, results: Path) -> list[str]:
    """Submit a candidate that is as fast as the kernel in torch."""
    repository = results / "submitted"
    _commit_suites(repository, (0.0,), is_large=device == "cuda")
    candidate = results / "candidate.py"
    candidate.write_text("def candidate(x):\n    return 1 + x\n")
    return _roofwatch(
        "submit", str(candidate), "--spec", str(repository / "bench_planted.py"), "--json"
    )


def _commit_suites(repository: Path, shares: Sequence[float], *, is_large: bool) -> None:
    """Make a repository with one commit for each share of additional work."""
    repository.mkdir(parents=True, exist_ok=True)
    # A step that is repeated finds the repository of its first attempt.
    if (repository / ".git").exists():
        return
    git = [
        "git",
        "-C",
        str(repository),
        "-c",
        "user.name=roofwatch",
        "-c",
        "user.email=roofwatch@localhost",
    ]
    size = 2**16
    count = 3
    if is_large:
        size = 2**22
        count = PLANTED_CASE_COUNT
    subprocess.run([*git, "init", "--quiet"], check=True)
    for share in shares:
        suite = _PLANTED_SUITE.format(factor=1 + share, size=size, count=count)
        (repository / "bench_planted.py").write_text(suite)
        subprocess.run([*git, "add", "bench_planted.py"], check=True)
        subprocess.run([*git, "commit", "--quiet", "-m", f"{share:.0%} more work"], check=True)


def _counters(kernel: str, record_name: str, results: Path) -> list[str]:
    record = RunRecord.read(results / record_name)
    case_ids = {case.case_id for case in record.cases if case.kernel == kernel}
    for measurement in record.measurements:
        if measurement.blocks and measurement.case_id in case_ids:
            record_file = str(results / record_name)
            return _roofwatch("ncu", measurement.case_id, "--record", record_file, "--json")
    raise ValueError(f"{kernel}: no case of it was timed")


def run_step(step: EvidenceStep, folder: Path, seconds: float) -> str | None:
    """Run one step; returns why it failed. Standard output of a command that prints JSON becomes
    its file.
    """
    output = folder / step.output
    log = folder / f"{step.name}.log"
    try:
        command = step.command(folder)
        with log.open("wb") as errors:
            done = subprocess.run(
                command,
                stdout=subprocess.PIPE,
                stderr=errors,
                timeout=seconds,
                check=False,
            )
    except subprocess.TimeoutExpired:
        return f"not done after {seconds:.0f} s; repeat the command"
    except (CollectorError, OSError, ValueError, subprocess.SubprocessError) as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    text = done.stdout.decode(errors="replace")
    with log.open("a") as log_file:
        log_file.write(text)
    # A command that fails may print a message instead of JSON.
    prints_document = output.suffix == ".json" and "--json" in command
    if prints_document and text.startswith(("{", "[")):
        output.write_text(text)
    if not output.exists():
        return f"exit status {done.returncode}; see {log.name}"
    return None


def write_archive(folder: Path, archive: Path) -> list[str]:
    """Pack the folder into one compressed file, in one step, so that a kill leaves the old one.

    The largest files are left out until the rest fits.

    Returns:
        Names of the files that were left out.
    """
    files = [file for file in folder.rglob("*") if file.is_file() and file != archive]
    files.sort(key=lambda file: file.stat().st_size)
    partial_archive = archive.with_name(f"{archive.name}.part")
    omitted: list[str] = []
    while True:
        with tarfile.open(partial_archive, "w:gz") as packed:
            for file in files:
                packed.add(file, file.relative_to(folder))
        fits = partial_archive.stat().st_size <= MAX_ARCHIVE_BYTES
        if fits or not files:
            break
        largest = files.pop()
        omitted.append(str(largest.relative_to(folder)))
    partial_archive.replace(archive)
    return omitted


def read_archive(archive: Path, folder: Path) -> None:
    """Continue where the archive of an earlier call ended; a folder with files stays as it is."""
    if archive.exists() and not any(folder.iterdir()):
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")


def peer_times_ns() -> dict[str, dict[str, float]]:
    """Median times of two launches by Triton's own benchmarks, in ns: with events, and as a CUDA
    graph.
    """
    import torch
    from triton import testing

    number = torch.ones(1, device="cuda")
    source = torch.ones(2**28, device="cuda")
    target = torch.empty_like(source)
    launches: dict[str, Callable[[], object]] = {
        "add of number number": lambda: number.add_(1),
        "add of 2^28 numbers": lambda: torch.add(source, 1, out=target),
    }
    times_ns: dict[str, dict[str, float]] = {}
    # a graph cannot use the default stream
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        for name, launch in launches.items():
            with_events_ms = testing.do_bench(launch, return_mode="median")
            in_graph_ms = testing.do_bench_cudagraph(launch, return_mode="median")
            times_ns[name] = {
                "do_bench": 1e6 * with_events_ms,
                "do_bench_cudagraph": 1e6 * in_graph_ms,
            }
    return times_ns


def missing_gpu() -> str | None:
    """Say why nothing can be measured on a GPU here; None if torch can use one."""
    try:
        import torch
    except ImportError as error:
        return f"torch cannot be imported ({error})"
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} finds no GPU on this machine"
    return None


def main() -> int:
    options = _parse_options()
    if options.peers:
        print(json.dumps(peer_times_ns()))
        return 0
    if options.device == "cuda":
        problem = missing_gpu()
        if problem is not None:
            print(f"{problem}; to rehearse: python -m bench.gpu_rehearsal", file=sys.stderr)
            return 2
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    if options.archive is not None:
        read_archive(options.archive, folder)
    deadline = time.monotonic() + options.seconds
    failures: dict[str, str] = {}
    missing = [step for step in steps(options.device) if not (folder / step.output).exists()]
    # A step that failed before must not keep the others from being tried; sorting is stable.
    missing.sort(key=lambda step: (folder / f"{step.name}.log").exists())
    for step in missing:
        seconds_left = deadline - time.monotonic()
        if options.only and not step.name.startswith(tuple(options.only)):
            failures[step.name] = "not asked for"
            continue
        if seconds_left < 1:
            failures[step.name] = "no time left; repeat the command"
            continue
        print(f"{step.name} ...", file=sys.stderr, flush=True)
        why = run_step(step, folder, min(seconds_left, step.limit_s))
        if why is not None:
            failures[step.name] = why
        # The machine may go away at any time.
        (folder / "README.md").write_text(page(folder, failures))
        if options.archive is not None:
            for name in write_archive(folder, options.archive):
                print(f"not in the archive, too large: {name}", file=sys.stderr)
    (folder / "README.md").write_text(page(folder, failures))
    print(json.dumps(failures, indent=2))
    return 1 if failures else 0


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("examples/gpu"))
    parser.add_argument("--only", nargs="*", default=[], help="names of steps, or their beginning")
    parser.add_argument(
        "--seconds",
        type=float,
        default=_STEP_SECONDS,
        help="time for all steps of this call",
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument(
        "--peers",
        action="store_true",
        help="print times by Triton's benchmarks as JSON, and end",
    )
    parser.add_argument("--archive", type=Path, help="everything so far in one file")
    # `run_step` stores what a command with this option prints.
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
