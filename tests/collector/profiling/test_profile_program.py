"""Programs as people write them, run under the profiler: real processes, real traces."""

import json
import os
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from roofwatch.collector.profiling.captured import CapturedProgram, RecordingState, recording_state
from roofwatch.collector.profiling.profile_file import read_bytes
from roofwatch.collector.profiling.profile_program import RecordingWindow, profile_program
from roofwatch.collector.redaction import EVERYTHING, Redaction

MULTIPLY = """
import torch
x = torch.ones(64, 64)
for _ in range(7):
    x @ x
"""
WITH_WORKERS = """
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset

print("to standard output")
print("to standard error", file=sys.stderr)
for (batch,) in DataLoader(TensorDataset(torch.ones(32, 8)), batch_size=4, num_workers=2):
    torch.cumsum(batch, 0)
"""
TRAINED_THEN_WAITING = """
import signal
import torch
layer = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for _ in range(30):
    layer(torch.ones(4, 8)).sum().backward()
    optimizer.step()
signal.pause()
"""
OPTIMIZED = """
import torch
layer = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for _ in range(10):
    layer(torch.ones(4, 8)).sum().backward()
    optimizer.step()
"""
TRITON = """
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget

@triton.jit
def double(x_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(x_ptr + offs, tl.load(x_ptr + offs) * 2)

source = triton.compiler.ASTSource(double, {"x_ptr": "*fp32", "BLOCK": "constexpr"}, {(1,): 128})
for target in (GPUTarget("cuda", 90, 32), GPUTarget("hip", "gfx942", 64)):
    triton.compile(source, target=target, options={"num_warps": 2})
"""


def profiled(folder: Path, script: str, **options: Any) -> CapturedProgram:
    (folder / "program.py").write_text(script)
    # to the end of the program, which a busy machine may take long to reach
    usual: dict[str, Any] = {"window": RecordingWindow(for_s=None), "redaction": Redaction()}
    return profile_program([str(folder / "program.py")], folder / "profile", **usual | options)


def trace_of(folder: Path, capture: CapturedProgram) -> dict[str, Any]:
    (trace,) = [trace for process in capture.processes for trace in process.traces]
    document: dict[str, Any] = json.loads(read_bytes(folder / "profile" / trace.trace))
    return document


def operators(document: dict[str, Any]) -> Counter[str]:
    return Counter(
        event["name"] for event in document["traceEvents"] if event.get("cat") == "cpu_op"
    )


@pytest.mark.slow
def test_a_program_with_workers_is_recorded_and_keeps_its_output(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    capture = profiled(tmp_path, WITH_WORKERS)

    assert capture.exit_status == 0
    assert capfd.readouterr() == ("to standard output\n", "to standard error\n")
    assert operators(trace_of(tmp_path, capture))["aten::cumsum"] == 8
    (process,) = capture.processes
    assert (process.forked_count, process.errors) == (2, ())
    assert [path.name for path in (tmp_path / "profile").iterdir()] == ["trace.json.gz"], (
        "nothing unredacted is left"
    )


@pytest.mark.parametrize(
    ("end", "exit_status", "end_reasons"),
    [
        ("raise ValueError", 1, ["the program ended"]),
        ("import os; os._exit(5)", 5, ["the program ended at once"]),
        ("import os; os.kill(os.getpid(), 15)", 143, ["the program was terminated"]),
        ("import os; os.kill(os.getpid(), 9)", 137, []),
    ],
)
@pytest.mark.slow
def test_whatever_ends_a_program_its_status_is_kept_with_all_traces_but_of_a_killed_one(
    end: str, exit_status: int, end_reasons: list[str], tmp_path: Path
) -> None:
    capture = profiled(tmp_path, MULTIPLY + end)

    (process,) = capture.processes
    assert (capture.exit_status, process.has_recorded) == (exit_status, True)
    assert [trace.end_reason for trace in process.traces] == end_reasons
    if end_reasons:
        assert operators(trace_of(tmp_path, capture))["aten::mm"] == 7


@pytest.mark.slow
def test_our_session_stops_when_the_program_starts_a_profiler(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    own = (
        "\nwith torch.profiler.profile() as own:\n    x + x\nprint(sorted(row.key for row in "
        "own.key_averages()))"
    )
    capture = profiled(tmp_path, MULTIPLY + own)

    assert capture.exit_status == 0
    assert capfd.readouterr().out == "['aten::add']\n"
    assert operators(trace_of(tmp_path, capture))["aten::mm"] == 7
    assert capture.processes[0].traces[0].end_reason == "the program started a profiler of its own"


@pytest.mark.slow
def test_a_window_of_optimizer_steps_holds_only_those_steps(tmp_path: Path) -> None:
    capture = profiled(tmp_path, OPTIMIZED, window=RecordingWindow(warmup_steps=3, steps=4))

    assert operators(trace_of(tmp_path, capture))["aten::addmm"] == 4


@pytest.mark.slow
def test_a_child_that_imports_torch_is_recorded_too(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(MULTIPLY)
    starts_child = (
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'child'], "
        f"cwd={str(tmp_path)!r})"
    )
    capture = profiled(tmp_path, starts_child)

    parent, child = capture.processes
    assert (parent.torch_version, child.parent) == (None, parent.pid)
    assert operators(trace_of(tmp_path, capture))["aten::mm"] == 7


def test_the_program_sees_its_own_sitecustomize_without_the_injected_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sitecustomize.py").write_text("loaded_as = __name__")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    script = (
        "import sys, sitecustomize\nprint(sitecustomize.loaded_as, any('inject' in entry for "
        "entry in sys.path))"
    )
    profiled(tmp_path, script)

    assert capfd.readouterr().out == "sitecustomize False\n"


def test_a_program_is_ended_after_max_seconds(tmp_path: Path) -> None:
    capture = profiled(tmp_path, "while True: pass", max_seconds=1)

    assert (capture.was_ended, capture.exit_status) == (True, 128 + signal.SIGTERM)


COMPILED = """
import torch

@torch.compile
def gate(x):
    return x * torch.sigmoid(x)

for _ in range(3):
    gate(torch.ones(64, 64))
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_a_kernel_of_torch_compile_names_the_operators_in_it(tmp_path: Path) -> None:
    capture = profiled(tmp_path, COMPILED)

    names = operators(trace_of(tmp_path, capture))
    assert any("cpp_fused_mul_sigmoid" in name for name in names), names


@pytest.mark.slow
def test_a_program_is_ended_once_its_steps_are_recorded_if_asked(tmp_path: Path) -> None:
    capture = profiled(
        tmp_path,
        TRAINED_THEN_WAITING,
        window=RecordingWindow(warmup_steps=None, for_s=None),
        is_ended_when_recorded=True,
    )

    assert capture.was_ended
    window = next(trace for trace in capture.processes[0].traces if trace.part == "window")
    assert window.end_reason == "the steps were done"
    assert window.steady is not None


@pytest.mark.slow
def test_a_complete_recording_is_announced_while_the_program_goes_on(tmp_path: Path) -> None:
    states: list[RecordingState] = []

    def interrupt_once_complete(state: RecordingState) -> None:
        states.append(state)
        raise KeyboardInterrupt

    pausing = TRAINED_THEN_WAITING.replace("signal.pause()", "signal.alarm(1); signal.pause()")
    capture = profiled(
        tmp_path,
        pausing,
        window=RecordingWindow(warmup_steps=None, for_s=None),
        on_state=interrupt_once_complete,
    )

    assert states == [RecordingState.COMPLETE]
    # Ctrl-C keeps the traces
    assert any(trace.part == "window" for trace in capture.processes[0].traces)


@pytest.mark.parametrize(
    ("kinds_by_process", "state"),
    [
        ([[]], RecordingState.RECORDING),
        ([["recording"]], RecordingState.RECORDING),
        ([["recording", "complete"]], RecordingState.COMPLETE),
        ([["recording", "complete"], ["recording"]], RecordingState.RECORDING),
        ([["recording", "complete"], ["forked"]], RecordingState.COMPLETE),
        ([["recording", "paused"]], RecordingState.PAUSED),
        ([["recording", "paused"], ["recording", "complete"]], RecordingState.PAUSED),
        ([["recording", "complete", "restarted", "recording"]], RecordingState.RECORDING),
    ],
)
def test_a_recording_is_complete_if_it_is_in_each_process_that_records(
    kinds_by_process: list[list[str]], state: RecordingState
) -> None:
    by_process = [[{"event": kind} for kind in kinds] for kinds in kinds_by_process]

    assert recording_state(by_process) is state


def test_every_triton_kernel_is_listed_with_its_resources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    capture = profiled(tmp_path, TRITON)

    by_backend = {kernel.backend: kernel for kernel in capture.kernels}
    assert by_backend.keys() == {"cuda", "hip"}
    for kernel in capture.kernels:
        assert (kernel.name, kernel.warps, kernel.spill_bytes, kernel.was_cached) == (
            "double",
            2,
            0,
            False,
        )
        assert kernel.registers
        assert kernel.compile_ns["ttir"] > 0


@pytest.mark.slow
def test_a_trace_names_no_host_and_no_folder_unless_kept(tmp_path: Path) -> None:
    redacted = trace_of(tmp_path, profiled(tmp_path, MULTIPLY))
    kept = trace_of(
        tmp_path, profiled(tmp_path, MULTIPLY, redaction=Redaction(kept_kinds=EVERYTHING))
    )

    assert kept["host_name"] == os.uname().nodename
    assert str(tmp_path) in json.dumps(kept)
    assert redacted["host_name"] == "<removed>"
    assert str(tmp_path) not in json.dumps(redacted)
    assert operators(redacted) == operators(kept)


@pytest.mark.gpu
def test_a_program_that_uses_the_gpu_has_its_kernels_and_launches(tmp_path: Path) -> None:
    on_gpu = (
        "\ny = torch.ones(64, 64, device='cuda')\nfor _ in range(5):\n    y @ "
        "y\ntorch.cuda.synchronize()"
    )
    capture = profiled(tmp_path, MULTIPLY + on_gpu)

    trace = next(trace for trace in capture.processes[0].traces if trace.device == "cuda")
    document = json.loads(read_bytes(tmp_path / "profile" / trace.trace))
    assert sum(event.get("cat") == "kernel" for event in document["traceEvents"]) >= 5
