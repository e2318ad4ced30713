"""The nightly job that keeps records and site on a branch, and what cannot destroy them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.builders import make_record
from tests.ci.forges.jobs import Runner
from tests.ci.forges.stand_in import GitHubStandIn, open_github
from tests.docs.markdown import ROOT, code_blocks
from tests.git_repository import commit_all, commit_file, git, make_repository
from tests.roofwatch.command import Done, roofwatch
from tests.workflows.changes import SUITE, environment

pytestmark = pytest.mark.slow
BRANCH = "gh-pages"


@dataclass(frozen=True)
class Hosted:
    """A repository with a remote, and a clone of it."""

    remote: Path
    clone: Path

    def tip(self) -> str:
        return git(self.remote, "rev-parse", f"refs/heads/{BRANCH}")

    def names(self) -> set[str]:
        listed = git(self.remote, "ls-tree", "-r", "--name-only", BRANCH)
        return set(listed.splitlines())


@pytest.fixture
def hosted(tmp_path: Path) -> Hosted:
    remote = make_repository(tmp_path / "remote")
    commit_file(remote, "bench_layers.py", SUITE)
    git(tmp_path, "clone", "--quiet", str(remote), "clone")
    return Hosted(remote, tmp_path / "clone")


def publish(hosted: Hosted, records: Path) -> Done:
    return roofwatch("publish", ".", "--branch", BRANCH, "--from", records, cwd=hosted.clone)


def write_record(folder: Path, number: int) -> Path:
    file = folder / f"{number}.json.gz"
    make_record(number).write(file)
    return file


def test_a_branch_grows_and_an_error_leaves_it_as_it_was(hosted: Hosted, tmp_path: Path) -> None:
    write_record(tmp_path / "first", 0)
    write_record(tmp_path / "second", 1)
    began = publish(hosted, tmp_path / "first")
    assert began.status == 0, began.error
    names = hosted.names()
    assert {"index.html", "records/0.json.gz"} <= names
    assert "bench_layers.py" not in names

    grown = publish(hosted, tmp_path / "second")

    assert grown.status == 0, grown.error
    assert {"records/0.json.gz", "records/1.json.gz"} <= hosted.names()
    assert "2 runs" in grown.output
    tip = hosted.tip()
    # another record under a name that is taken
    write_record(tmp_path / "other", 2).rename(tmp_path / "other" / "0.json.gz")
    assert publish(hosted, tmp_path / "other").status == 2
    damaged = write_record(tmp_path / "damaged", 3)
    damaged.write_bytes(damaged.read_bytes()[:-20])
    assert publish(hosted, tmp_path / "damaged").status == 2
    # a remote that cannot be read is not a new branch
    git(hosted.clone, "remote", "set-url", "origin", str(tmp_path / "nowhere"))
    assert publish(hosted, tmp_path / "second").status == 2
    assert hosted.tip() == tip
    assert git(hosted.clone, "worktree", "list").count("\n") == 0


def night(github: GitHubStandIn, hosted: Hosted, folder: Path, programs: dict[str, str]) -> None:
    """Run both jobs, each in a new clone."""
    (text,) = code_blocks(ROOT / "docs" / "how-to" / "publish.md", "yaml")
    for name, job in yaml.safe_load(text)["jobs"].items():
        checkout = folder / name / "checkout"
        checkout.parent.mkdir(parents=True)
        git(checkout.parent, "clone", "--quiet", str(hosted.remote), "checkout")
        runner = Runner(
            github,
            "schedule",
            {},
            checkout,
            artifacts=folder / "artifacts",
            environment={"PATH": programs["PATH"]},
        )
        runner.job(job, {})


def test_two_nights_keep_both_commits_on_the_branch(hosted: Hosted, tmp_path: Path) -> None:
    programs = environment(tmp_path)
    with open_github() as github:
        night(github, hosted, tmp_path / "first", programs)
        records = {name for name in hosted.names() if name.startswith("records/")}
        (hosted.remote / "README.md").write_text("What it does.\n")
        commit_all(hosted.remote)
        night(github, hosted, tmp_path / "second", programs)

    assert records
    assert records <= hosted.names()
    assert {"index.html", "index.json", "feed.atom", "badges/scale.svg"} <= hosted.names()
