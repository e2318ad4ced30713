"""`roofwatch watch` after each commit of a repository, as a runner's job does it."""

from pathlib import Path

import pytest

from tests.git_repository import commit_file, make_repository
from tests.roofwatch.bisection.slowed_repository import BENCHMARK, QUICK, SLOW
from tests.roofwatch.command import roofwatch

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_servers")]


def test_a_slower_commit_is_confirmed_in_its_own_run_and_nothing_else_is(tmp_path: Path) -> None:
    folder = tmp_path / "watched"
    make_repository(folder)
    (folder / "bench_total.py").write_text(BENCHMARK)
    commit_file(folder, "work.py", QUICK, "Begin")
    command = (
        "watch",
        folder / "bench_total.py",
        "--records",
        tmp_path / "records",
        "--device",
        "cpu",
        "--branch",
        "HEAD",
        "--json",
    )
    history: tuple[tuple[str, str, str, list[str]], ...] = (
        ("Name a constant", "work.py", f"{QUICK}\nOTHER = 1", []),
        ("Write a page", "page.md", "What it does.\n", []),
        ("Work ten times as much", "work.py", f"{SLOW}\nOTHER = 1", ["Work ten times as much"]),
        ("Name another", "work.py", f"{SLOW}\nOTHER = 2", ["Work ten times as much"]),
    )
    for subject, file, text, expected in history:
        sha = commit_file(folder, file, text, subject)

        planned = roofwatch(*command, "--dry-run")
        done = roofwatch(*command)

        assert done.status == (1 if expected else 0), done.error
        news = [job["head"]["sha"] for job in planned.parsed["agenda"] if job["kind"] == "new"]
        assert news == ([] if file == "page.md" else [sha])
        assert planned.parsed["done"] == []
        found = [one["commit"]["subject"] for one in done.parsed["regressions"]]
        assert found == expected
    assert roofwatch(*command, "--dry-run").parsed["agenda"] == []
