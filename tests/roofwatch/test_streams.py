"""Commands whose output cannot be written, or is read by nobody, end as other tools do."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from typing import IO

import pytest

COMMAND = shlex.join([sys.executable, "-c", "from roofwatch.cli.main import main; main()"])
LOST = "roofwatch: standard output cannot be written: {}\n"
CLOSED, FULL = LOST.format("Bad file descriptor"), LOST.format("No space left on device")


def shell(script: str, unbuffered: str, output: IO[str] | int = subprocess.PIPE) -> tuple[int, str]:
    """The status and the standard error of a script in which $R is the command line."""
    done = subprocess.run(
        ["bash", "-c", script.replace("$R", COMMAND)],
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHONUNBUFFERED": unbuffered},
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("script", "status", "error"),
    [
        ("$R schema >&-", 2, CLOSED),
        ("$R schema >/dev/full", 2, FULL),
        ("$R --version >/dev/full", 2, FULL),
        ("$R --help >/dev/full", 2, FULL),
        ("$R schema >&- 2>&-", 2, ""),
        ("$R schema 2>&- | wc -l >&2; exit ${PIPESTATUS[0]}", 0, None),
        ("$R read gone.json 2>&-", 2, ""),
        ("$R read gone.json 2>/dev/full", 2, ""),
        ("$R no-such-command 2>/dev/full", 2, ""),
        ("$R schema <&- >/dev/null", 0, ""),
    ],
)
def test_what_cannot_be_written_is_told_where_it_can_be(
    script: str, status: int, error: str | None, unbuffered: str
) -> None:
    told, said = shell(script, unbuffered)

    assert told == status, said
    assert said == error or (error is None and int(said) > 100)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("script", ["$R schema", "$R --help", "$R no-such-command 2>&1"])
def test_what_nobody_reads_ends_quietly_and_is_no_regression(script: str, unbuffered: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as gone:
        assert shell(script, unbuffered, gone) == (141, "")
