"""How long the commands of the README take for its kernel, beside other benchmark tools.

    make bench-commands

Each command is a cold process in a new repository; the compilers' caches are as they are. CPU time
is that of all processes: on a busy machine it says more than the wall time.
"""

import importlib.util
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

_README = Path(__file__).parents[1] / "README.md"
_SUITE = "bench_squared_relu.py"
_ROOFWATCH = "from roofwatch.cli.main import main; main()"
_GOALS = (
    (6, f"check {_SUITE}"),
    (12, f"run {_SUITE}"),
    (5, f"static {_SUITE} --targets sm_90"),
    (2, f"static {_SUITE} --targets sm_90"),
    (12, f"diagnose squared_relu {_SUITE} --device cpu"),
    (1, f"ab {_SUITE} --base HEAD"),
)
"""Seconds on two idle cores. The second `static` is cached; `ab` has nothing to compare."""
_AB_GOAL = (45, f"ab {_SUITE} --base HEAD")
"""With a changed kernel."""
_PROMISE = re.compile(r"blocks per side: about (\d+) s")
_FIRST_LOOK = re.compile(r"\d+ of \d+ decided")
_PYTEST_BENCHMARK = """
import pytest
import torch
from bench_squared_relu import squared_relu_torch


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("is_compiled", [False, True])
def test_squared_relu(benchmark, dtype, is_compiled):
    torch.set_num_threads(1)
    x = torch.randn(512, 4096, dtype=dtype)
    function = torch.compile(squared_relu_torch) if is_compiled else squared_relu_torch
    function(x)
    benchmark(function, x)
"""
_DO_BENCH = """
import torch
import triton
from bench_squared_relu import squared_relu_triton

for dtype in (torch.float32, torch.bfloat16):
    x = torch.randn(512, 4096, dtype=dtype, device="cuda")
    triton.testing.do_bench(lambda: squared_relu_triton(x))
"""


@dataclass(frozen=True)
class CommandCost:
    """What a process, and all that it started, took."""

    wall_s: float
    cpu_s: float
    status: int
    times_s: tuple[tuple[float, str], ...]
    """Each line of standard error, and when it came."""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="first-minutes-") as name:
        folder = Path(name)
        _write_repository(folder)
        load = os.getloadavg()[0]
        core_count = len(os.sched_getaffinity(0))
        print(f"load {load:.1f} on {core_count} cores")
        peer = _measure_peers(folder)
        print(f"{'command':56} {'goal':>4} {'wall':>6} {'CPU':>6} {'CPU / peer':>11}")
        for goal_s, command in _GOALS:
            _print_row(
                command=command,
                goal_s=goal_s,
                spent=_run_command(folder, command),
                peer=peer,
            )
        suite = folder / _SUITE
        suite.write_text(suite.read_text().replace("x * x, mask", "x * x * 1.0, mask"))
        goal_s, command = _AB_GOAL
        spent = _run_command(folder, command)
        _print_row(
            command=command,
            goal_s=goal_s,
            spent=spent,
            peer=peer,
        )
        _print_promise(spent)


def _write_repository(folder: Path) -> None:
    """A repository as a new user has it after the first page of the README."""
    example = re.search(r"```python\n(.*?)```", _README.read_text(), re.DOTALL)
    assert example is not None
    (folder / _SUITE).write_text(example[1])
    (folder / "test_peer.py").write_text(_PYTEST_BENCHMARK)
    (folder / "do_bench.py").write_text(_DO_BENCH)
    author = ["-c", "user.name=Bench", "-c", "user.email=bench@example.org"]
    for arguments in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", "Add kernel"]):
        subprocess.run(["git", *arguments], cwd=folder, check=True)


def _measure_peers(folder: Path) -> CommandCost | None:
    """Time the same two dtypes with other tools; return pytest-benchmark's time."""
    # do_bench times launches on a GPU only
    if torch.cuda.is_available():
        print(_times("triton.testing.do_bench", _spent(folder, "do_bench.py")))
    else:
        print("triton.testing.do_bench: needs a GPU")
    if importlib.util.find_spec("pytest_benchmark") is None:
        print("pytest-benchmark: not installed")
        return None
    peer = _spent(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_peer.py")
    print(_times("pytest-benchmark", peer))
    return peer


def _run_command(folder: Path, command: str) -> CommandCost:
    return _spent(folder, "-c", _ROOFWATCH, *command.split())


def _spent(folder: Path, *arguments: str) -> CommandCost:
    """Run a command, and measure its time until each line of progress."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began_s = time.monotonic()
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        lines = [(time.monotonic() - began_s, line) for line in process.stderr]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return CommandCost(
        wall_s=time.monotonic() - began_s,
        cpu_s=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        status=process.returncode,
        times_s=tuple(lines),
    )


def _times(name: str, spent: CommandCost) -> str:
    return f"{name}: {spent.wall_s:.1f} s, {spent.cpu_s:.1f} s of CPU, status {spent.status}"


def _print_row(
    command: str,
    goal_s: int,
    spent: CommandCost,
    peer: CommandCost | None,
) -> None:
    """Print the cost of a command beside that of the peer."""
    ratio = ""
    if peer is not None:
        ratio = f"{spent.cpu_s / peer.cpu_s:.2f}"
    figures = f"{goal_s:>4} {spent.wall_s:6.1f} {spent.cpu_s:6.1f} {ratio:>11}"
    print(f"{command:56} {figures}  status {spent.status}", flush=True)


def _print_promise(spent: CommandCost) -> None:
    """How long the first blocks of `ab` took, and what it had said before."""
    promised_s = None
    said_at_s = None
    for at_s, line in spent.times_s:
        promise = _PROMISE.search(line)
        if promise is not None:
            promised_s = int(promise[1])
            said_at_s = at_s
        elif promised_s is not None and said_at_s is not None and _FIRST_LOOK.search(line):
            # the promise counts from the line that made it
            taken_s = at_s - said_at_s
            ratio = taken_s / promised_s
            print(f"blocks of ab: promised {promised_s} s, took {taken_s:.0f} s ({ratio:.2f})")
            return


if __name__ == "__main__":
    main()
