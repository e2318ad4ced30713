"""`roofwatch watch` after each commit of a repository, as a runner's job does it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.git_repository import commit_file, git, make_repository
from tests.roofwatch.bisection.slowed_repository import (
    BENCHMARK,
    QUICK,
    SLOW,
    make_slowed_repository,
)
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


@dataclass
class Watched:
    """The repository as it grows, and all that was told."""

    folder: Path
    records: Path
    alerts: list[tuple[str, ...]] = field(default_factory=list)
    recoveries: list[tuple[str, ...]] = field(default_factory=list)


@pytest.fixture(scope="module")
def layers(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    root = tmp_path_factory.mktemp("watch")
    return Watched(make_repository(root / "layers"), root / "records")


# a test for each commit, in order: all fourteen take longer than one test may on a busy machine
@pytest.mark.xdist_group("fourteen commits")
@pytest.mark.parametrize("number", range(len(STEPS)))
def test_each_of_fourteen_commits_raises_only_the_alert_of_its_change(
    layers: Watched, number: int
) -> None:
    step = STEPS[number]
    commit_step(layers.folder, step)

    done = watch(layers.folder, layers.records)

    assert done.status in (0, 1), done.error
    new_alerts = subjects_of(done.parsed["news"], "regressed")
    layers.alerts += new_alerts
    layers.recoveries += subjects_of(done.parsed["news"], "recovered")
    assert done.status == (1 if new_alerts else 0)
    planted = [(one.subject, one.alerts) for one in STEPS[: number + 1] if one.alerts]
    earlier = [(one.subject, one.alerts) for one in STEPS[:number] if one.alerts]
    # on a busy machine an alert may need the next run
    assert layers.alerts in (planted, earlier)


@pytest.mark.xdist_group("fourteen commits")
def test_after_fourteen_commits_every_change_was_told_once(layers: Watched) -> None:
    assert layers.alerts == [(step.subject, step.alerts) for step in STEPS if step.alerts]
    assert [kernel for _, kernel in layers.recoveries] == ["scale", "scale"]


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
    assert all(job["reason"] and job["seconds"] > 0 for job in planned.parsed["agenda"])
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


def test_the_same_command_continues_a_range_that_is_measured_from_its_newest_commit(
    tmp_path: Path,
) -> None:
    slowed = make_slowed_repository(tmp_path / "slowed")
    commits = f"{slowed.shas[1]}..{slowed.shas[7]}"

    first = watch(slowed.benchmark, tmp_path / "records", "--range", commits, "--max-jobs", "1")
    planned = watch(slowed.benchmark, tmp_path / "records", "--range", commits, "--dry-run")

    assert first.status == 0, first.error
    (done,) = first.parsed["done"]
    assert done["job"]["head"]["sha"] == slowed.shas[7]
    assert len(done["files"]) == 1
    (waiting,) = planned.parsed["agenda"]
    assert (waiting["kind"], waiting["base"]) == ("fill", None)
    assert waiting["head"]["sha"] in slowed.shas[2:6]


@pytest.mark.parametrize("commits", ["HEAD", "HEAD...HEAD^", "HEAD..HEAD^"])
def test_an_invalid_range_is_refused(tmp_path: Path, commits: str) -> None:
    slowed = make_slowed_repository(tmp_path / "slowed")

    done = watch(slowed.benchmark, tmp_path / "records", "--range", commits)

    assert done.status == 2
    assert "write A..B" in done.error or "no commits between" in done.error


def test_issues_without_a_repository_are_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    done = roofwatch("watch", "--issues", "--records", tmp_path)

    assert done.status == 2
    assert "--issues needs GITHUB_TOKEN" in done.error
