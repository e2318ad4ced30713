"""`check --sanitize`, with a program in place of compute-sanitizer that writes a log of its form.

The logs follow those of compute-sanitizer 2025.2 and 2026.3, as documented and as printed on a
machine without a GPU.
"""

import sys
from pathlib import Path

import pytest

from roofwatch.measurement.sanitize import describe_errors, describe_failure, run_sanitized
from roofwatch.model.errors import ToolchainError
from tests.roofwatch.command import SUITES, roofwatch

_BACKTRACE = """\
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: cuLaunchKernelEx [0x2f26f0] in libcuda.so.1
=========         Host Frame: PyObject_Call [0x22d1ab] in python3
=========
"""
OUT_OF_BOUNDS = f"""========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at double_kernel+0x150 in bench_x.py:12
=========     by thread (40,0,0) in block (0,0,0)
=========     Access to 0x7f2b0fa000a0 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f2b0fa00000 of size 160 bytes
{_BACKTRACE}========= Invalid __global__ read of size 16 bytes
=========     at matmul_kernel+0xec0 in bench_x.py:43
=========     by thread (18,0,0) in block (0,0,0)
=========     Address 0x7f2b0fa00102 is misaligned
=========     and is inside the nearest allocation at 0x7f2b0fa00000 of size 512 bytes
{_BACKTRACE}========= ERROR SUMMARY: 230 errors
========= ERROR SUMMARY: 130 errors were not printed. Use --print-limit option to adjust
"""
NOTHING_WRONG = """========= COMPUTE-SANITIZER
========= ERROR SUMMARY: 0 errors
"""
WITHOUT_A_GPU = """========= COMPUTE-SANITIZER
========= Error: process didn't terminate successfully
=========     The application may have hit an error when dereferencing Unified Memory from the host.
========= Error: Target application terminated before first instrumented API call
"""


def install_sanitizer(folder: Path, log: str) -> None:
    """Write a program that writes a log and runs the command that it is given."""
    program = folder / "compute-sanitizer"
    program.write_text(
        f"#!{sys.executable}\n"
        "import subprocess, sys\n"
        "position = sys.argv.index('--log-file') + 1\n"
        "log = sys.argv[position].replace('%p', '1')\n"
        f"open(log, 'w').write({log!r})\n"
        "sys.exit(subprocess.run(sys.argv[position + 1 :]).returncode)\n"
    )
    program.chmod(0o755)


def test_an_error_is_shown_once_without_its_backtrace() -> None:
    assert describe_errors(OUT_OF_BOUNDS) == (
        "compute-sanitizer: 230 errors\n"
        "  Invalid __global__ write of size 4 bytes\n"
        "    at double_kernel+0x150 in bench_x.py:12\n"
        "    by thread (40,0,0) in block (0,0,0)\n"
        "    Access to 0x7f2b0fa000a0 is out of bounds\n"
        "    and is 1 bytes after the nearest allocation at 0x7f2b0fa00000 of size 160 bytes\n"
        "  Invalid __global__ read of size 16 bytes\n"
        "    at matmul_kernel+0xec0 in bench_x.py:43\n"
        "    by thread (18,0,0) in block (0,0,0)\n"
        "    Address 0x7f2b0fa00102 is misaligned\n"
        "    and is inside the nearest allocation at 0x7f2b0fa00000 of size 512 bytes"
    )


def test_without_errors_there_is_nothing_to_describe() -> None:
    assert describe_errors(NOTHING_WRONG) is None


def test_a_run_that_the_sanitizer_could_not_follow_is_not_called_right() -> None:
    failure = describe_failure(WITHOUT_A_GPU)
    assert failure is not None
    assert "Target application terminated before first instrumented API call" in failure
    assert describe_failure(NOTHING_WRONG) is None


@pytest.mark.parametrize(
    ("log", "exit_status"),
    [(NOTHING_WRONG, 0), (OUT_OF_BOUNDS, 1), (WITHOUT_A_GPU, 2)],
)
def test_the_exit_status_is_that_of_the_check_unless_the_sanitizer_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: str, exit_status: int
) -> None:
    install_sanitizer(tmp_path, log)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert run_sanitized(["--version"]).exit_status == exit_status


@pytest.mark.slow
def test_the_whole_check_runs_within_the_sanitizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_sanitizer(tmp_path, OUT_OF_BOUNDS)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    suite = SUITES / "bench_broken.py"
    done = roofwatch("check", suite, "-c", "sound/*", "-i", "torch", "--sanitize", cwd=tmp_path)
    assert done.status == 1
    assert "checked: " in done.output
    assert "at double_kernel+0x150 in bench_x.py:12" in done.error


def test_without_the_sanitizer_the_message_says_where_it_comes_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ToolchainError, match="comes with NVIDIA's CUDA toolkit"):
        run_sanitized(["--version"])
