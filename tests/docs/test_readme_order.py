"""The commands of the README work in the order in which they are read."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, code_blocks, shell_lines
from tests.git_repository import make_repository

FILE_NAME = "bench_squared_relu.py"
SECTION = "Five commands for every day"
QUICK = "return torch.relu(x).square()"
SLOW = "return sum(torch.relu(x).square() for _ in range(40)) / 40"


@pytest.mark.slow
def test_a_new_user_gets_from_a_check_to_a_verdict(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "kernels")
    file = repository / FILE_NAME
    file.write_text(code_blocks(ROOT / "README.md", "python")[0])
    lines = shell_lines(ROOT / "README.md", SECTION)
    assert [line.split()[1] for line in lines] == [
        *("check", "run", "static", "diagnose"),
        *("add", "commit", "ab"),
        *("ingest", "dashboard"),
    ]
    *first_lines, verdict_line, ingest_line, _ = lines

    output = {line: run(line, repository) for line in first_lines}
    file.write_text(file.read_text().replace(QUICK, SLOW))
    verdict = run(verdict_line, repository, status=1)
    run(ingest_line, repository)

    assert "results  proven" in output[lines[0]]
    assert "/ reference" in output[lines[1]]
    assert "regressed" in verdict
    for line in output[lines[3]].splitlines():
        if "missing: times" in line:
            assert line.partition("`")[2].partition("`")[0].endswith(f" {FILE_NAME}")


def run(line: str, folder: Path, *, status: int = 0) -> str:
    words = shlex.split(line)
    if words[0] == "roofwatch":
        words = [sys.executable, "-m", *words]
    names = {"GIT_AUTHOR_NAME": "A. Author", "GIT_AUTHOR_EMAIL": "author@example.org"}
    names |= {key.replace("AUTHOR", "COMMITTER"): name for key, name in names.items()}
    done = subprocess.run(
        words,
        cwd=folder,
        env={
            **os.environ,
            **names,
            "NO_COLOR": "1",
            "ROOFWATCH_DATA_DIR": str(folder.parent / "data"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout
