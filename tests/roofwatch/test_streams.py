"""Errors of standard output: a full disk and a closed pipe."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from typing import IO

import pytest

COMMAND = shlex.join([sys.executable, "-c", "from roofwatch.cli.main import main; main()"])
FULL = "roofwatch: standard output cannot be written: No space left on device\n"


def shell(script: str, output: IO[str] | int = subprocess.PIPE) -> tuple[int, str]:
    """Exit status and standard error of a script in which $R is the command line."""
    done = subprocess.run(
        ["bash", "-c", script.replace("$R", COMMAND)],
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin"},
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("script", "status", "error"),
    [
        ("$R schema >/dev/full", 2, FULL),
        ("$R --version >/dev/full", 2, FULL),
        ("$R read gone.json 2>/dev/full", 2, ""),
    ],
)
def test_a_full_disk_is_an_error_and_not_a_regression(script: str, status: int, error: str) -> None:
    assert shell(script) == (status, error)


@pytest.mark.parametrize("script", ["$R schema", "$R --help"])
def test_a_closed_pipe_ends_the_command_quietly(script: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as gone:
        assert shell(script, gone) == (141, "")
