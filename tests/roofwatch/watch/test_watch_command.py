"""`roofwatch watch` after each commit of a repository, as a runner's job does it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.git_repository import commit_file, git, make_repository
from tests.roofwatch.bisection.slowed_repository import BENCHMARK, QUICK, SLOW
from tests.roofwatch.command import Done, roofwatch
from tests.roofwatch.watch.layers_repository import STEPS, commit_step

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_servers")]


def watch(suite: Path, records: Path, *options: str) -> Done:
    return roofwatch(
        "watch",
        suite,
        "--records",
        records,
        "--device",
        "cpu",
        "--targets",
        "sm_90",
        "--branch",
        "HEAD",
        "--json",
        *options,
    )


def subjects_of(news: list[dict[str, Any]], kind: str) -> list[tuple[str, ...]]:
    return [
        (message["subject"], *message["kernels"]) for message in news if message["kind"] == kind
    ]


def test_fourteen_commits_raise_an_alert_for_each_change_and_for_nothing_else(
    tmp_path: Path,
) -> None:
    folder = make_repository(tmp_path / "layers")
    alerts: list[tuple[str, ...]] = []
    recoveries: list[tuple[str, ...]] = []
    late: list[str] = []
    for step in STEPS:
        commit_step(folder, step)

        done = watch(folder, tmp_path / "records")

        assert done.status in (0, 1), done.error
        new_alerts = subjects_of(done.parsed["news"], "regressed")
        alerts += new_alerts
        recoveries += subjects_of(done.parsed["news"], "recovered")
        assert done.status == (1 if new_alerts else 0)
        if step.alerts and (step.subject, step.alerts) not in alerts:
            late.append(step.subject)

    planted = [(step.subject, step.alerts) for step in STEPS if step.alerts]
    assert alerts == planted
    assert len(STEPS) == 14
    # a busy machine may need a second job for a change of time
    assert len(late) <= 1
    assert {kernel for _, kernel in recoveries} == {"scale"}
    assert len(recoveries) == 2


def test_one_night_after_many_commits_names_the_commit_that_changed_the_kernel(
    tmp_path: Path,
) -> None:
    folder = make_repository(tmp_path / "watched")
    (folder / "bench_total.py").write_text(BENCHMARK)
    commit_file(folder, "work.py", QUICK, "Begin")
    first = watch(folder, tmp_path / "records")
    for number, (name, text, subject) in enumerate(
        (
            ("page.md", "What it does.\n", "Write a page"),
            ("other.py", "OTHER = 1\n", "Add a module"),
            ("work.py", SLOW, "Work ten times as much"),
            ("other.py", "OTHER = 2\n", "Change the module"),
        )
    ):
        sha = commit_file(folder, name, text, subject)
        if number == 2:
            slow_sha = sha

    planned = watch(folder, tmp_path / "records", "--dry-run")
    done = watch(folder, tmp_path / "records")
    again = watch(folder, tmp_path / "records")

    assert first.parsed["news"] == []
    assert planned.parsed["done"] == []
    assert [job["kind"] for job in planned.parsed["agenda"]] == ["new", "fill"]
    assert done.status == 1, done.error
    assert [(message["kind"], message["sha"]) for message in done.parsed["news"]] == [
        ("regressed", slow_sha)
    ]
    assert again.status == 0
    assert again.parsed["news"] == []
    assert again.parsed["agenda"] == []
    assert len(again.parsed["regressions"]) == 1


def test_a_rewritten_branch_is_measured_from_the_last_common_commit(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "watched")
    (folder / "bench_total.py").write_text(BENCHMARK)
    common = commit_file(folder, "work.py", QUICK, "Begin")
    watch(folder, tmp_path / "records")
    commit_file(folder, "work.py", f"{QUICK}\nOTHER = 1", "Name a constant")
    watch(folder, tmp_path / "records")
    git(folder, "reset", "--quiet", "--hard", common)
    rewritten = commit_file(folder, "work.py", f"{QUICK}\nOTHER = 2", "Name it otherwise")

    done = watch(folder, tmp_path / "records")

    (job,) = done.parsed["done"]
    assert (job["job"]["base"]["sha"], job["job"]["head"]["sha"]) == (common, rewritten)
    assert done.parsed["waiting"] == []
