"""Repositories that adopt roofwatch with the documented workflows, from a pull request to its
comment and check.
"""

import os
import re
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from tests.ci.forges.jobs import (
    ROOT,
    WORKFLOWS,
    Runner,
    comment_event,
    documented_workflow,
    workflow_run_event,
)
from tests.ci.forges.stand_in import TOKEN, GitHubStandIn
from tests.git_repository import commit_all, git, make_repository
from tests.workflows.changes import environment

SUITE = """
import torch
from roofwatch import KernelSpec, cases

scale = KernelSpec(
    name="scale",
    inputs=lambda case, make: {"x": make.normal(case["n_rows"], 512)},
    reference=lambda x: x * 2.0,
    cases=cases(shapes=[{"n_rows": 256}], dtypes=["float32"]),
    flop_count=lambda case: case["n_rows"] * 512,
    memory_bytes=lambda case: 2 * case["n_rows"] * 512 * case.itemsize,
)


@scale.implementation("torch")
def scale_torch(x):
    return x * 2.0
"""
SLOWER = "return sum((x * 0.125 for _ in range(15)), x * 0.125)"
"""Slow enough for a busy machine."""
pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class PullRequest:
    """A pull request whose target branch moved on."""

    origin: Path
    base: str
    """Where it left the target branch."""
    head: str
    merge: str
    """What GitHub checks out by default."""

    def check_out(self, folder: Path, sha: str, depth: int) -> Path:
        """Check a commit out as actions/checkout does."""
        make_repository(folder)
        git(folder, "remote", "add", "origin", self.origin.as_uri())
        branches = [] if depth else ["+refs/heads/*:refs/remotes/origin/*"]
        git(
            folder,
            "fetch",
            "--quiet",
            "--no-tags",
            *([f"--depth={depth}"] if depth else []),
            "origin",
            *branches,
            sha,
        )
        git(folder, "checkout", "--quiet", "--detach", sha)
        return folder


@pytest.fixture
def pull_request(tmp_path: Path) -> PullRequest:
    origin = make_repository(tmp_path / "origin")
    git(origin, "config", "uploadpack.allowAnySHA1InWant", "true")
    suite = origin / "bench_layers.py"
    suite.write_text(SUITE)
    (origin / "requirements.txt").touch()
    base = commit_all(origin)
    git(origin, "checkout", "--quiet", "-b", "slower")
    suite.write_text(SUITE.replace("    return x * 2.0\n", f"    {SLOWER}\n"))
    head = commit_all(origin)
    git(origin, "checkout", "--quiet", "main")
    (origin / "README.md").touch()
    commit_all(origin)
    git(origin, "checkout", "--quiet", "--detach")
    git(origin, "merge", "--quiet", "--no-edit", "slower")
    return PullRequest(origin, base, head, git(origin, "rev-parse", "HEAD"))


@pytest.fixture
def github(github: GitHubStandIn, pull_request: PullRequest) -> GitHubStandIn:
    head = {"label": "someone:slower", "sha": pull_request.head}
    github.pull_requests = [{"number": 7, "head": head, "base": {"ref": "main"}}]
    github.permissions = {"maintainer": "write"}
    return github


def event_of(pull_request: PullRequest) -> dict[str, object]:
    found = {
        "number": 7,
        "draft": False,
        "head": {"sha": pull_request.head},
        "base": {"ref": "main"},
        "labels": [],
    }
    return {"action": "opened", "pull_request": found}


def test_one_step_reports_on_a_repository_with_its_own_torch(
    github: GitHubStandIn, pull_request: PullRequest, tmp_path: Path
) -> None:
    theirs, action = tmp_path / "their-python", tmp_path / "action"
    venv.create(theirs, with_pip=True)
    (site,) = theirs.glob("lib/python*/site-packages")
    seen = [path for path in sys.path if path.endswith("-packages")]
    (site / "torch.pth").write_text(
        "".join(f"import site; site.addsitedir({path!r})\n" for path in seen)
    )
    before = sorted(site.iterdir())
    subprocess.run(["git", "clone", "--quiet", ROOT, action], check=True)
    download = [
        f"{theirs}/bin/pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(tmp_path),
        "setuptools>=80",
    ]
    if subprocess.run(download, check=False, capture_output=True).returncode:
        pytest.skip("pip reaches no package index, and builds the wheel with setuptools from there")
    checkout = pull_request.check_out(tmp_path / "work" / "checkout", pull_request.merge, depth=1)
    runner = Runner(
        github,
        "pull_request",
        event_of(pull_request),
        checkout,
        action_path=action,
        is_installed=True,
        environment={"PATH": f"{theirs}/bin:{os.environ['PATH']}"},
    )
    shown = documented_workflow("docs/how-to/github.md", "uses: roofwatch/roofwatch@<commit>")
    (job,) = yaml.safe_load(shown)["jobs"].values()

    runner.job(job, {})

    assert github.comments, "\n".join(runner.outputs)
    (comment,), (check_run,) = github.comments.values(), github.check_runs.values()
    assert (comment["number"], check_run["head_sha"]) == (7, pull_request.head)
    assert check_run["conclusion"] == "failure"
    assert f"--base {pull_request.base[:8]} " in comment["body"]
    assert sorted(site.iterdir()) == before
    (installed,) = runner.temp.glob("roofwatch/lib/python*/site-packages/roofwatch/__init__.py")
    assert not installed.is_symlink()


def documented_halves() -> tuple[str, str]:
    measure = documented_workflow("README.md", "measure.yml@<commit>")
    return measure, documented_workflow("README.md", "report.yml@<commit>")


def own_halves() -> tuple[str, str]:
    """Those of this repository."""
    measure = WORKFLOWS / "roofwatch.yml"
    return measure.read_text(), (WORKFLOWS / "roofwatch-report.yml").read_text()


@pytest.mark.parametrize("halves", [documented_halves, own_halves])
def test_a_change_of_no_kernel_is_a_success_after_both_halves(
    github: GitHubStandIn,
    pull_request: PullRequest,
    tmp_path: Path,
    halves: Callable[[], tuple[str, str]],
) -> None:
    measure, report = halves()
    suite = pull_request.origin / yaml.safe_load(measure)["jobs"]["measure"]["with"]["suite"]
    git(pull_request.origin, "checkout", "--quiet", "main")
    suite.parent.mkdir(parents=True, exist_ok=True)
    suite.write_text(SUITE)
    (pull_request.origin / "NEWS.md").touch()
    commit_all(pull_request.origin)
    git(pull_request.origin, "checkout", "--quiet", "-b", "documented")
    (pull_request.origin / "README.md").write_text("What it does.\n")
    head = commit_all(pull_request.origin)
    checkout = pull_request.check_out(tmp_path / "pull-request" / "checkout", head, depth=0)
    nothing = make_repository(tmp_path / "default-branch" / "checkout")
    artifacts = tmp_path / "artifacts"
    ended = workflow_run_event("completed", head, "success")
    measured = Runner(
        github,
        "pull_request",
        event_of(replace(pull_request, head=head)),
        checkout,
        artifacts,
        # pip finds torch installed
        environment={"PATH": environment(tmp_path)["PATH"]},
    )

    measured.called_job(measure, "measure")
    Runner(github, "workflow_run", ended, nothing, artifacts).called_job(report, "report")

    (check_run,) = github.check_runs.values()
    assert (check_run["conclusion"], check_run["output"]["title"]) == (
        "success",
        "no kernel touched: nothing to measure",
    )


def test_a_fork_s_pull_request_needs_no_token_from_measuring_to_running_again(
    github: GitHubStandIn, pull_request: PullRequest, tmp_path: Path
) -> None:
    measure, report = (
        documented_workflow("README.md", f"{name}.yml@<commit>") for name in ("measure", "report")
    )
    head = pull_request.head
    checkout = pull_request.check_out(
        tmp_path / "pull-request" / "checkout", pull_request.merge, depth=0
    )
    nothing = make_repository(tmp_path / "default-branch" / "checkout")
    artifacts = tmp_path / "artifacts"
    began = Runner(github, "workflow_run", workflow_run_event("requested", head), nothing)
    measured = Runner(github, "pull_request", event_of(pull_request), checkout, artifacts)
    ended = Runner(
        github, "workflow_run", workflow_run_event("completed", head, "success"), nothing, artifacts
    )

    began.called_job(report, "report")
    (check_run,) = github.check_runs.values()
    assert (check_run["status"], check_run["head_sha"]) == ("in_progress", head)

    measured.called_job(measure, "measure")
    assert "1 of 1 benchmark slower" in measured.summary_file.read_text()
    assert measured.saw_token == []
    assert len(github.check_runs) == 1, "the measuring job does not contact GitHub"

    ended.called_job(report, "report")
    assert (check_run["status"], check_run["conclusion"]) == ("completed", "failure")
    title = check_run["output"]["title"]
    assert re.fullmatch(
        r"1 of 1 benchmark slower · worst \+[\d,]+% \(scale\); 1 result less accurate", title
    )
    assert check_run["details_url"].endswith("/actions/runs/4242")
    (annotation,) = check_run["annotations"]
    line = (checkout / annotation["path"]).read_text().splitlines()[annotation["start_line"] - 1]
    assert (annotation["path"], line) == ("bench_layers.py", "def scale_torch(x):")
    assert annotation["message"].startswith("scale/n_rows=256/float32/fwd torch: slower: time +")
    (comment,) = list(github.comments.values())
    assert comment["number"] == 7
    heading, _, details = title.partition("; ")
    assert f"### ❌ {heading}".replace("(scale)", "(`scale`)") in comment["body"]
    assert details in comment["body"]
    interval = r"(?:±[\d.]+%|\([+-][\d.,]+% to [+-][\d.,]+%\))"
    change = re.search(rf"\| \*\*\+([\d,]+)%\*\* {interval}<br>[^|]*? \| (.*?) \|", comment["body"])
    assert change is not None
    assert int(change[1].replace(",", "")) > 20
    source = f"/blob/{head}/bench_layers.py#L{annotation['start_line']}"
    assert re.fullmatch(
        rf"\[`scale`\]\(https://[\w./-]+{re.escape(source)}\) `torch`<br>`n_rows=256 float32 fwd`",
        change[2],
    )
    assert (
        f"`roofwatch ab bench_layers.py --base {pull_request.base[:8]} -k scale`" in comment["body"]
    )

    asked = github.add_comment(
        f"/roofwatch accept it is clearer\n/roofwatch run {head[:8]}",
        user={"login": "maintainer", "type": "User"},
    )
    commanded = Runner(
        github,
        "issue_comment",
        comment_event(github.comments[asked]),
        nothing,
        artifacts,
        run_id=5_000,
    )
    outputs = commanded.called_job(report, "command")
    assert outputs is not None
    assert check_run["conclusion"] == "neutral"
    assert "by `maintainer` on `2026-01-02`: `it is clearer`" in comment["body"]
    assert (asked, "+1") in github.reactions

    needs = {"command": {"outputs": outputs}}
    reviewed = pull_request.check_out(tmp_path / "gpu" / "checkout", head, depth=0)
    requested = Runner(github, "issue_comment", commanded.event, reviewed, artifacts, run_id=5_000)
    requested.called_job(report, "measure", **needs)
    assert requested.saw_token == []
    commanded.called_job(report, "answer", **needs)
    newest = github.check_runs[max(github.check_runs)]
    assert (newest["head_sha"], newest["status"]) == (head, "completed")
    assert newest["details_url"].endswith("/actions/runs/5000")
    assert re.search(
        rf"`{head[:8]}` \(\[run\]\(https://\S+/5000\)\): `1 of 1 benchmark slower",
        github.bodies[-1],
    )
    runners = (began, measured, ended, commanded, requested)
    assert TOKEN not in "".join(text for runner in runners for text in runner.outputs)
