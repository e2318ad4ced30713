"""What a job uses of a machine, and its limits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from roofwatch.queue.limits import JobLimits, folder_size, held_memory

MIB = 2**20
HOLDS = """
import subprocess, sys
subprocess.run([sys.executable, "-c", "numbers = b'x' * (200 * 2**20); print(flush=True); input()"])
"""


@pytest.fixture(scope="module")
def held_bytes_before_after() -> tuple[float, float]:
    """Memory of a process with all that it started: while they run, then when they have ended."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        held_bytes = held_memory(process.pid)
        process.communicate(b"\n")
    return held_bytes, held_memory(process.pid)


def test_memory_of_all_that_a_process_started_counts(
    held_bytes_before_after: tuple[float, float],
) -> None:
    assert 200 * MIB < held_bytes_before_after[0] < 300 * MIB


def test_memory_of_other_processes_does_not_count(
    held_bytes_before_after: tuple[float, float],
) -> None:
    assert held_bytes_before_after[1] == 0


def test_a_folder_counts_the_disk_that_its_own_files_take(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "file").write_bytes(os.urandom(3 * MIB))
    with (tmp_path / "sparse").open("wb") as sparse:
        sparse.truncate(100 * MIB)
    (tmp_path / "link").symlink_to("/usr")
    os.sync()

    assert 3 * MIB <= folder_size(tmp_path) < 4 * MIB


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file of 1 MiB."""
    (tmp_path / "file").write_bytes(os.urandom(MIB))
    os.sync()
    return tmp_path


def test_the_sentence_on_the_disk_names_its_option(folder: Path) -> None:
    limits = JobLimits(memory_bytes=1e15, disk_bytes=0.0)

    assert limits.exceeded(os.getpid(), folder) == (
        "used 0.0 GiB of the disk, at most 0.0 GiB are allowed (--disk of the runner)"
    )


def test_a_job_within_its_limits_exceeds_none(folder: Path) -> None:
    assert JobLimits(memory_bytes=1e15, disk_bytes=1e15).exceeded(os.getpid(), folder) is None


def test_of_two_exceeded_limits_that_of_memory_is_named(folder: Path) -> None:
    limits = JobLimits(memory_bytes=0.0, disk_bytes=0.0)

    assert "of memory" in (limits.exceeded(os.getpid(), folder) or "")
