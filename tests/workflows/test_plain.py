"""The jobs that `roofwatch init --plain` writes, run on a pull request of the proposed repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from roofwatch.proposals.install_source import InstallSource
from roofwatch.proposals.proposing import propose
from tests.ci.forges.jobs import Runner, workflow_run_event
from tests.ci.forges.stand_in import GitHubStandIn, open_github
from tests.git_repository import git
from tests.workflows.changes import Checkout, environment, make_checkout

pytestmark = pytest.mark.slow
SOURCE = InstallSource("someone/roofwatch", "a" * 40)


def plain_jobs(checkout: Checkout) -> tuple[dict[str, Any], dict[str, Any]]:
    """The job that measures and the one that reports."""
    _, files = propose(checkout.folder, SOURCE, is_plain=True)
    texts = {path.name: text for path, text in files.items()}
    # the name of the benchmark file is that of the folder
    measure = texts["roofwatch.yml"].replace("bench_checkout.py", "bench_layers.py")
    (measuring,) = yaml.safe_load(measure)["jobs"].values()
    (reporting,) = yaml.safe_load(texts["roofwatch-report.yml"])["jobs"].values()
    return measuring, reporting


def runner(
    github: GitHubStandIn, name: str, event: dict[str, Any], folder: Path, programs: dict[str, str]
) -> Runner:
    artifacts = folder.parent.parent / "artifacts"
    return Runner(
        github, name, event, folder, artifacts=artifacts, environment={"PATH": programs["PATH"]}
    )


def test_a_slower_head_gets_a_comment_and_a_failing_check(tmp_path: Path) -> None:
    checkout = make_checkout(tmp_path, "slower")
    measuring, reporting = plain_jobs(checkout)
    programs = environment(tmp_path)
    workspace = tmp_path / "measuring" / "checkout"
    git(tmp_path, "clone", "--quiet", str(tmp_path / "origin"), str(workspace))
    git(workspace, "checkout", "--quiet", "--detach", checkout.head)
    nothing = tmp_path / "reporting" / "checkout"
    nothing.mkdir(parents=True)
    pull_request = {
        "number": 7,
        "draft": False,
        "head": {"sha": checkout.head},
        "base": {"ref": "main", "sha": checkout.base},
        "labels": [],
    }
    ended = workflow_run_event("completed", checkout.head, "success", head_branch="topic")
    with open_github() as github:
        head = {"label": "someone:topic", "sha": checkout.head}
        github.pull_requests = [{"number": 7, "head": head, "base": {"ref": "main"}}]
        opened = {"action": "opened", "pull_request": pull_request}

        measured = runner(github, "pull_request", opened, workspace, programs)
        measured.environment["GITHUB_BASE_REF"] = "main"
        measured.job(measuring, {})
        reported = runner(github, "workflow_run", ended, nothing, programs)
        reported.job(reporting, {})

        (check,) = github.check_runs.values()
        (body,) = github.bodies
    assert measured.saw_token == []
    assert check["conclusion"] == "failure"
    assert "1 of 1 benchmark slower" in body
