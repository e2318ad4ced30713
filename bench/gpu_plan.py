"""The steps of `bench/gpu_evidence.py`: what each one runs, its time limit, and their order."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bench.gpu_planted import commit_suites, write_candidate
from roofwatch.model.record import RunRecord

TIMERS = ("cupti", "cuda_graph", "cuda_event")
SLOWDOWNS = (0.01, 0.02, 0.05)
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
FIRST_RESULT = ("contact", "counters-first")
"""Steps of the first minute: the machine, ceilings and timers, and one launch under `ncu`."""
_FIRST_COUNTED = (
    "memory_copy/n_rows=4096,n_cols=128256,layout=contiguous/bfloat16/fwd",
    "--implementation",
    "triton",
    # by name, so that one launch is enough; a set of sections replays it some 40 times
    "--set",
    "gpu__time_duration.sum,dram__bytes_read.sum,sm__inst_executed.avg.per_cycle_active",
)
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
    "kernels": 750,
}
"""Tests that need a GPU, those with the fewest and smallest kernels first, and about how many;
each has a report of its own.
"""
_TESTED_FIRST = 4
PREDICTIONS = "predictions.json"
_PREDICTED_TARGET = "sm_90"
"""Of the GPU that the evidence is for."""


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
        EvidenceStep(
            output=f"counters-{kernel}.json",
            command=partial(_counters, kernel, "headlines.json.gz"),
            limit_s=90,
        )
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
    contact = [sys.executable, "-m", "bench.gpu_contact", "--device", device, "--json"]
    promised = [
        EvidenceStep(output=f"{FIRST_RESULT[0]}.json", command=lambda _: contact, limit_s=60),
        EvidenceStep(
            output=f"{FIRST_RESULT[1]}.json",
            command=lambda _: _roofwatch("ncu", *_FIRST_COUNTED, "--json"),
            limit_s=60,
        ),
        _written_by(
            output="first.json.gz",
            words=[*survey, "-k", "memory_copy", "-k", "matmul", "-i", "torch"],
            limit_s=60,
        ),
        _written_by(
            output="headlines.json.gz",
            words=[*survey, *_kernels(_HEADLINES)],
            limit_s=480,
        ),
        *counters[:_COUNTED_FIRST],
        *planted,
        EvidenceStep(
            output="noise/noise_floor.json",
            command=lambda folder: _roofwatch(*calibrate, "-o", str(folder / "noise")),
            limit_s=480,
        ),
        EvidenceStep(output="submit.json", command=partial(_submit, device), limit_s=120),
        *tests[:_TESTED_FIRST],
    ]
    extras = [
        *counters[_COUNTED_FIRST:],
        *_extra_steps(device, measure, survey),
        *tests[_TESTED_FIRST:],
    ]
    return promised + [replace(step, is_extra=True) for step in extras]


def _extra_steps(device: str, measure: Sequence[str], survey: Sequence[str]) -> list[EvidenceStep]:
    """Steps that no target needs: timers, all kernels, workloads and predictions."""
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
        _written_by(output="quick.json.gz", words=survey, limit_s=520),
        _written_by(output="workloads.json.gz", words=profile, limit_s=520),
        EvidenceStep(PREDICTIONS, lambda _: prediction_command()),
    ]


def prediction_command() -> list[str]:
    """Estimate the headline kernels from their machine code, which needs no GPU."""
    words = ["static", "--targets", _PREDICTED_TARGET, "-t", "quick", "-i", "triton"]
    return _roofwatch(*words, *_kernels(_HEADLINES), "--json")


def _calibration(measure: Sequence[str]) -> list[str]:
    # Budget 0: the number of blocks is what limits it.
    words = ["calibrate", *measure, *_kernels(_CALIBRATED), "-i", "triton"]
    return [*words, "--budget", "0", "--blocks", "6", "--resume"]


def _written_by(output: str, words: Sequence[str], limit_s: float) -> EvidenceStep:
    """A step whose command writes its file by itself."""
    return EvidenceStep(
        output=output,
        command=lambda folder: _roofwatch(*words, "-o", str(folder / output)),
        limit_s=limit_s,
    )


def _test_name(tests: str) -> str:
    return "tests-" + tests.removesuffix(".py").replace("/", "-")


def _tests(tests: str, results: Path) -> list[str]:
    """The command for one folder of tests, with durations of the slowest."""
    # each process keeps GPU memory of its own, up to 36 GB in a check of a quick case
    workers = "0" if tests in _ALONE else "2"
    report = results / f"{_test_name(tests)}.xml"
    options = [
        "-m",
        "gpu",
        # not the options of pyproject.toml
        "-o",
        "addopts=",
        "-n",
        workers,
        "-q",
        "-rfE",
        "--durations",
        "20",
    ]
    pytest = [sys.executable, "-m", "pytest", f"tests/{tests}"]
    return [*pytest, *options, "--junitxml", str(report)]


def _timer(timer: str, measure: Sequence[str], results: Path) -> list[str]:
    words = ["run", "--no-static", "--timer", timer, "--cache", "hot", *measure, *_kernels(_TIMED)]
    return _roofwatch(*words, "--resume", "-o", str(results / f"timer-{timer}.json.gz"))


def _planted(extra: float, measure: Sequence[str], results: Path) -> list[str]:
    """Measure additions of several sizes at two commits; the second commit adds more numbers."""
    repository = results / f"planted-{extra:.0%}"
    commit_suites(repository, (0.0, extra), is_large="cuda" in measure)
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
    commit_suites(repository, (0.0,), is_large=device == "cuda")
    candidate = write_candidate(results)
    return _roofwatch(
        "submit", str(candidate), "--spec", str(repository / "bench_planted.py"), "--json"
    )


def _counters(kernel: str, record_name: str, results: Path) -> list[str]:
    """The command that counts the first timed case of a kernel."""
    record = RunRecord.read(results / record_name)
    case_ids = {case.case_id for case in record.cases if case.kernel == kernel}
    for measurement in record.measurements:
        if measurement.blocks and measurement.case_id in case_ids:
            record_file = str(results / record_name)
            return _roofwatch("ncu", measurement.case_id, "--record", record_file, "--json")
    raise ValueError(f"{kernel}: no case of it was timed")
