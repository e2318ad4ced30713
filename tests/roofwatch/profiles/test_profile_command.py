"""`roofwatch profile` and `roofwatch redact` as a user runs them,
and the sentences of a profile.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from roofwatch.collector.profiling.captured import CapturedProcess, CapturedProgram, CapturedTrace
from roofwatch.collector.profiling.profile_file import read_bytes
from roofwatch.collector.profiling.time_spent import TimeSpent, time_spent
from roofwatch.collector.profiling.trace import Trace
from roofwatch.model.record import RunRecord
from roofwatch.profiles.report import ProfileReport, folder_for, growth_of_steps, report_of
from tests.builders import make_record
from tests.roofwatch.command import Done, roofwatch

DATA = Path(__file__).parents[2] / "data" / "profiles"

MULTIPLY = """
import torch
print("hello")
x = torch.ones(256, 256)
for _ in range(40):
    x @ x
"""


def time_of(path: Path) -> TimeSpent:
    trace = Trace.read(read_bytes(path), path.name)
    assert trace is not None
    return time_spent(trace)


def process_of(**fields: Any) -> CapturedProcess:
    defaults: dict[str, Any] = {
        "pid": 1,
        "parent": 0,
        "torch_version": "2.11.0",
        "has_recorded": True,
        "forked_count": 0,
        "traces": (),
        "errors": (),
    }
    return CapturedProcess(**defaults | fields)


def report_on(*processes: CapturedProcess, exit_status: int = 0) -> ProfileReport:
    return report_of(
        CapturedProgram(exit_status, was_ended=False, processes=processes, kernels=()), DATA
    )


def traced(
    name: str, end_reason: str = "the program ended", *, folder: Path = DATA
) -> CapturedProcess:
    time = time_of(folder / name)
    trace = CapturedTrace(
        trace=name,
        pid=1,
        rank=None,
        command="train.py",
        device="cuda",
        end_reason=end_reason,
        part="window",
        recorded_ns=time.window_ns,
        steady=None,
        time=time,
        cpu_ns=time.window_ns,
    )
    return process_of(traces=(trace,))


@pytest.fixture(scope="module")
def failing_program(tmp_path_factory: pytest.TempPathFactory) -> tuple[Done, Path]:
    """A profiled program that ends with status 3, and the folder of its profile."""
    folder = tmp_path_factory.mktemp("failing")
    (folder / "program.py").write_text(MULTIPLY + "raise SystemExit(3)")
    profile = folder / "profile"
    done = roofwatch("profile", "-o", profile, "--", sys.executable, "program.py", cwd=folder)
    return done, profile


def test_a_failing_program_is_profiled(failing_program: tuple[Done, Path]) -> None:
    done, profile = failing_program

    assert "aten::mm" in done.error
    assert "No GPU was used" in done.error
    assert (
        "The program ended with status 3; the profile shows what it did until then." in done.error
    )
    assert f"Written: {profile}/trace.json.gz" in done.error.replace("\n", " ")
    assert time_of(profile / "trace.json.gz").operators[0].name == "aten::mm"


def test_a_profiled_program_keeps_its_output(failing_program: tuple[Done, Path]) -> None:
    done, _ = failing_program

    assert done.output == "hello\n"


def test_a_profiled_program_keeps_its_status(failing_program: tuple[Done, Path]) -> None:
    done, _ = failing_program

    assert done.status == 3


def test_json_is_one_document(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(MULTIPLY)
    done = roofwatch("profile", "--json", "-o", "profile", "--", "program.py", cwd=tmp_path)

    assert "hello" in done.error
    (trace,) = done.parsed["traces"]
    (multiplied,) = [row for row in trace["time"]["operators"] if row["name"] == "aten::mm"]
    # the first calls are left out where they are slower
    assert multiplied["count"] == len(trace["steady"]["step_ns"]) > 3


def test_a_crash_in_the_step_with_stacks_leads_to_a_recording_without_them() -> None:
    report = report_on(traced("triton_a100.json.gz", "the steps began"), exit_status=139)

    assert "choose a part with --after and --for" in " ".join(report.notes)


def test_a_program_without_torch_keeps_its_status(tmp_path: Path) -> None:
    done = roofwatch("profile", "-o", tmp_path, "--", sys.executable, "-c", "raise SystemExit(7)")

    assert done.status == 7
    assert "Nothing was recorded: the program never imported torch." in done.error


def test_a_missing_command_exits_with_2(tmp_path: Path) -> None:
    done = roofwatch("profile", "-o", tmp_path, "--", "no-such-program")

    assert done.status == 2
    assert "no-such-program: cannot be started" in done.error


def test_redact_copies_a_trace_without_its_secrets(tmp_path: Path) -> None:
    done = roofwatch("redact", DATA / "triton_a100.json.gz", "-o", tmp_path / "copy.json")

    assert done.status == 0
    assert "bcoutinho" not in (tmp_path / "copy.json").read_text()


def test_redact_names_the_fields_that_it_emptied(tmp_path: Path) -> None:
    done = roofwatch("redact", DATA / "triton_a100.json.gz", "-o", tmp_path / "copy.json")

    assert "emptied: INFO" in done.output


def test_redact_copies_a_record_without_its_author(tmp_path: Path) -> None:
    original = make_record()
    original.write(tmp_path / "record.json")

    done = roofwatch("redact", tmp_path / "record.json", "-o", tmp_path / "copy.json")

    assert done.status == 0
    copy = RunRecord.read(tmp_path / "copy.json")
    assert copy.commit.author == ""
    assert copy.measurements == original.measurements


def test_redact_never_replaces_a_record(tmp_path: Path) -> None:
    original, file = make_record(), tmp_path / "record.json"
    original.write(file)

    onto_itself = roofwatch("redact", file, "-o", file)
    without_a_copy = roofwatch("redact", file)

    assert (onto_itself.status, without_a_copy.status) == (2, 2)
    assert RunRecord.read(file) == original


@pytest.mark.parametrize(("kernel_us", "is_mostly_idle"), [(40, True), (90, False)])
def test_the_summary_of_a_busy_and_an_idle_gpu(
    kernel_us: int, is_mostly_idle: bool, tmp_path: Path
) -> None:
    on_device = {"ph": "X", "cat": "kernel", "name": "gemm", "args": {"device": 0, "stream": 7}}
    events = [
        on_device | {"ts": 0, "dur": kernel_us / 2},
        on_device | {"ts": 100 - kernel_us / 2, "dur": kernel_us / 2},
        {
            "ph": "X",
            "cat": "cuda_runtime",
            "name": "cudaMalloc",
            "ts": 20,
            "dur": 60,
            "pid": 1,
            "tid": 1,
            "args": {},
        },
    ]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))

    summary = report_on(traced("trace.json", folder=tmp_path)).summary

    assert f"GPU 0 was busy for {kernel_us}% of the recorded 100 µs." in summary
    assert "The kernel with the most time is gemm: 100% of the busy time, in 2 launches" in summary
    assert "meanwhile the host was mostly in cudaMalloc." in summary
    assert ("faster kernels will gain little" in summary) is is_mostly_idle


@pytest.mark.parametrize(
    ("processes", "reason"),
    [
        ((), "the profiler was not loaded"),
        ((process_of(),), "killed before it could be written"),
        ((process_of(has_recorded=False),), "ended before the recording began"),
    ],
)
def test_an_empty_profile_says_why(processes: tuple[CapturedProcess, ...], reason: str) -> None:
    assert reason in report_on(*processes).summary


def test_steps_that_get_longer_are_told_from_steps_that_vary() -> None:
    growing = [10 + step for step in range(40)]
    varying = [30, 10, 20, 40] * 10

    assert growth_of_steps(growing) == (14.5, 44.5)
    assert growth_of_steps(growing[::-1]) is None
    assert growth_of_steps(varying) is None
    assert growth_of_steps(growing[:12]) is None, "too few steps"


def test_missing_parts_are_noted() -> None:
    report = report_on(
        traced("simple_add_a100.json", "the window ended"),
        process_of(pid=2, forked_count=3, errors=("RuntimeError: x",)),
        exit_status=139,
    )
    notes = " ".join(report.notes)
    assert "was ended by signal 11; the profile shows" in notes
    assert "ends after the time to record (--for)" in notes
    assert "3 process(es) were forked from process 2" in notes
    assert "Process 2: RuntimeError: x" in notes


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "-u", "jobs/train.py", "--lr", "1"], "train"),
        (["python", "-m", "package.train"], "package"),
        (["serve-model"], "serve-model"),
    ],
)
def test_a_folder_is_named_after_the_program(command: list[str], name: str) -> None:
    assert folder_for(command).parent == Path("roofwatch-profiles")
    assert folder_for(command).name.endswith(f"-{name}")
