"""The action with its real install: an environment with the repository's torch and nothing else."""

from __future__ import annotations

import os
import subprocess
import venv
from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.ci.forges.jobs import ROOT, Runner, comment_event, documented_workflow
from tests.ci.forges.stand_in import TOKEN, GitHubStandIn, open_github
from tests.git_repository import git
from tests.roofwatch.extras import installed_by
from tests.workflows.changes import Checkout, make_checkout
from tests.workflows.test_plain import SOURCE, plain_jobs

pytestmark = pytest.mark.slow
MAX_MEGABYTES = 40
SERIES = "scale/n_rows=256/float32/fwd torch"


@pytest.fixture(scope="module")
def action(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This repository's commit, as a job checks it out."""
    folder = tmp_path_factory.mktemp("action") / "roofwatch"
    subprocess.run(["git", "clone", "--quiet", "--depth=1", ROOT.as_uri(), folder], check=True)
    return folder


@pytest.fixture(scope="module")
def their_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with what the extra `measure` brings, and no database client."""
    folder = tmp_path_factory.mktemp("their") / "python"
    venv.create(folder, with_pip=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for name in installed_by("measure") - installed_by():
        installed = distribution(name)
        for file in installed.files or ():
            top = file.parts[0]
            source = Path(str(installed.locate_file(top)))
            if top != ".." and source.exists() and not (site / top).exists():
                (site / top).symlink_to(source)
    return folder


def bytes_of(folder: Path) -> int:
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return sum(path.stat().st_size for path in files)


def runner_of(
    github: GitHubStandIn, event: dict[str, object], folder: Path, action: Path, python: Path
) -> Runner:
    folder.parent.mkdir(exist_ok=True)
    return Runner(
        github,
        "issue_comment",
        event,
        folder,
        artifacts=folder.parents[1] / "artifacts",
        run_id=5_000,
        action_path=action,
        is_installed=True,
        environment={"PATH": f"{python}/bin:{os.environ['PATH']}"},
    )


def test_a_comment_s_bisection_is_answered_with_the_commit(
    tmp_path: Path, action: Path, their_python: Path
) -> None:
    """Its install lacked sqlalchemy, all jobs ended green, and the reply was "failed"."""
    checkout: Checkout = make_checkout(tmp_path, "slower")
    report = documented_workflow("README.md", "report.yml@<commit>")
    nothing = tmp_path / "default-branch" / "checkout"
    nothing.mkdir(parents=True)
    measuring = tmp_path / "measuring" / "checkout"
    measuring.parent.mkdir()
    git(tmp_path, "clone", "--quiet", str(tmp_path / "origin"), str(measuring))
    git(measuring, "checkout", "--quiet", "--detach", checkout.head)
    with open_github() as github:
        head = {"label": "o:topic", "sha": checkout.head}
        github.pull_requests = [{"number": 7, "head": head, "base": {"ref": "main"}}]
        github.permissions = {"maintainer": "write"}
        text = f"/roofwatch bisect {SERIES} at {checkout.head[:8]}"
        asked = github.add_comment(text, user={"login": "maintainer", "type": "User"})
        event = comment_event(github.comments[asked])

        commanded = runner_of(github, event, nothing, action, their_python)
        outputs = commanded.called_job(report, "command")
        needs = {"command": {"outputs": outputs}}
        measured = runner_of(github, event, measuring, action, their_python)
        measured.called_job(report, "measure", **needs)
        commanded.called_job(report, "answer", **needs)

        assert f"{checkout.head} is the first slower commit" in github.bodies[-1]
        assert TOKEN not in "".join(measured.outputs)
    reporting = commanded.temp / "roofwatch"
    assert bytes_of(reporting) < MAX_MEGABYTES * 1e6


def test_the_plain_report_job_installs_little(tmp_path: Path, action: Path) -> None:
    """It was 46 MB, half of it compiled files that are used once."""
    _, reporting = plain_jobs(make_checkout(tmp_path, "documentation"))
    (command,) = [step["run"] for step in reporting["steps"] if "install" in step.get("run", "")]
    assert SOURCE.requirement("github") in command
    # the commit is not on GitHub
    command = command.replace(SOURCE.requirement("github"), f"'{action}[github]'")
    folder = tmp_path / "python"
    venv.create(folder, with_pip=True)
    empty_bytes = bytes_of(folder)

    variables = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}"}
    subprocess.run(["bash", "-e", "-c", command], check=True, env=variables, capture_output=True)

    assert bytes_of(folder) - empty_bytes < MAX_MEGABYTES * 1e6
