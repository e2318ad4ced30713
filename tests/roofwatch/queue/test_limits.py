"""What a job uses of a machine, and its limits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from roofwatch.queue.limits import JobLimits, folder_size, held_memory

MIB = 2**20
HOLDS = """
import subprocess, sys
subprocess.run([sys.executable, "-c", "numbers = b'x' * (200 * 2**20); print(flush=True); input()"])
"""


def test_memory_of_all_that_a_process_started_counts_and_other_processes_do_not() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        held_bytes = held_memory(process.pid)
        process.communicate(b"\n")

    assert 200 * MIB < held_bytes < 300 * MIB
    assert held_memory(process.pid) == 0


def test_files_count_by_the_disk_that_they_take_and_links_do_not(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "file").write_bytes(os.urandom(3 * MIB))
    with (tmp_path / "sparse").open("wb") as sparse:
        sparse.truncate(100 * MIB)
    (tmp_path / "link").symlink_to("/usr")
    os.sync()

    assert 3 * MIB <= folder_size(tmp_path) < 4 * MIB


def test_the_sentence_names_use_limit_and_option(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(os.urandom(MIB))
    os.sync()

    narrow = JobLimits(memory_bytes=1e15, disk_bytes=0.0)
    assert narrow.exceeded(os.getpid(), tmp_path) == (
        "used 0.0 GiB of the disk, at most 0.0 GiB are allowed (--disk of the runner)"
    )
    none = JobLimits(memory_bytes=1e15, disk_bytes=1e15)
    assert none.exceeded(os.getpid(), tmp_path) is None
    small = JobLimits(memory_bytes=0.0, disk_bytes=0.0)
    assert "of memory" in (small.exceeded(os.getpid(), tmp_path) or "")
