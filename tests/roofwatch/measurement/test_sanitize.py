"""`check --sanitize`, with a program in place of compute-sanitizer that writes a log of its form."""

import sys
from pathlib import Path

import pytest

from roofwatch.measurement.sanitize import describe_errors, run_sanitized
from roofwatch.model.errors import ToolchainError

LOG = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at double_kernel+0x150 in bench_x.py:12
=========     by thread (40,0,0) in block (0,0,0)
=========     Address 0x7f2b0fa000a0 is out of bounds
========= ERROR SUMMARY: 24 errors
"""


def test_the_errors_of_a_log_are_counted_and_the_first_is_shown() -> None:
    described = describe_errors(LOG)
    assert described is not None
    assert described.startswith(
        "compute-sanitizer: 24 errors\n  Invalid __global__ write of size 4"
    )
    assert "at double_kernel+0x150 in bench_x.py:12" in described
    assert describe_errors("========= ERROR SUMMARY: 0 errors\n") is None


def test_the_command_runs_within_the_sanitizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "compute-sanitizer"
    program.write_text(
        f"#!{sys.executable}\n"
        "import subprocess, sys\n"
        "log = sys.argv[sys.argv.index('--log-file') + 1].replace('%p', '1')\n"
        f"open(log, 'w').write({LOG!r})\n"
        "sys.exit(subprocess.run(sys.argv[sys.argv.index('--log-file') + 2:]).returncode)\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    status, errors = run_sanitized(["--version"])

    assert status == 0
    assert errors is not None


def test_without_the_sanitizer_the_message_says_where_it_comes_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ToolchainError, match="comes with NVIDIA's CUDA toolkit"):
        run_sanitized(["--version"])
