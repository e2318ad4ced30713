"""A pull request that makes a kernel slower, through the shipped workflows."""

import re
import shutil
from pathlib import Path

import pytest

from tests.ci.github.jobs import Job, comment_event, workflow_run_event
from tests.ci.github.stand_in import TOKEN, GitHubStandIn
from tests.git_repository import commit_all, make_repository

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


@pytest.mark.slow
def test_a_slower_kernel_is_reported_on_its_pull_request_and_can_be_accepted(
    github: GitHubStandIn, tmp_path: Path
) -> None:
    checkout, default_branch = tmp_path / "pull-request", tmp_path / "default-branch"
    suite = make_repository(checkout) / "bench_scale.py"
    suite.write_text(SUITE)
    base = commit_all(checkout)
    suite.write_text(SUITE.replace("    return x * 2.0\n", f"    {SLOWER}\n"))
    head = commit_all(checkout)
    default_branch.mkdir()
    github.pull_requests = [{"number": 7, "head": {"label": "someone:slower", "sha": head}}]
    began = Job("report.yml", "report", "workflow_run", workflow_run_event("requested", head), default_branch)
    pull_request = {"number": 7, "head": {"sha": head}, "base": {"sha": base}}
    measured = Job("measure.yml", "measure", "pull_request", {"pull_request": pull_request}, checkout)
    ended = Job(
        "report.yml", "report", "workflow_run", workflow_run_event("completed", head, "success"), default_branch
    )

    outputs = began.run(github)
    (check_run,) = github.check_runs.values()
    assert (check_run["status"], check_run["head_sha"]) == ("in_progress", head)

    outputs += measured.run(github, SUITE="bench_scale.py", GITHUB_TOKEN="")
    assert "#### Time" in measured.summary_file.read_text()
    assert len(github.check_runs) == 1, "the measuring job does not contact GitHub"

    # what the actions for artifacts do in between
    shutil.copytree(checkout / "roofwatch-records", default_branch / "from-the-pull-request")
    outputs += ended.run(github)

    (check_run,) = github.check_runs.values()
    assert (check_run["status"], check_run["conclusion"]) == ("completed", "failure")
    title = check_run["output"]["title"]
    assert re.fullmatch(r"1 of 1 benchmark slower · worst \+\d+% \(scale\); 1 result less accurate", title)
    assert check_run["details_url"].endswith("/actions/runs/4242")
    (annotation,) = check_run["annotations"]
    line = (checkout / annotation["path"]).read_text().splitlines()[annotation["start_line"] - 1]
    assert (annotation["path"], line) == ("bench_scale.py", "def scale_torch(x):")
    assert annotation["message"].startswith("scale/n_rows=256/float32/fwd eager: time +")
    (comment,) = list(github.comments.values())
    assert comment["number"] == 7
    heading, _, details = title.partition("; ")
    assert f"### ❌ {heading}".replace("(scale)", "(`scale`)") in comment["body"]
    assert details in comment["body"]
    change = re.search(r"\| \*\*\+([\d.]+)%\*\* ±[\d.]+% \| (.*?) \|", comment["body"])
    assert change is not None
    assert float(change[1]) > 20
    source = f"/blob/{head}/bench_scale.py#L{annotation['start_line']}"
    assert re.fullmatch(
        rf"\[`scale`\]\(https://[\w./-]+{re.escape(source)}\) `eager`<br>`n_rows=256 float32 fwd`", change[2]
    )
    assert f"`roofwatch ab bench_scale.py --base {base[:8]} -k scale`" in comment["body"]
    github.permissions["maintainer"] = "write"
    github.pull_requests[0]["base"] = {"sha": base}
    body = "/roofwatch accept it is clearer this way"
    comment_id = github.add_comment(body, user={"login": "maintainer", "type": "User"})
    event = comment_event(github.comments[comment_id])
    outputs += Job("command.yml", "command", "issue_comment", event, default_branch).run(github)
    assert check_run["conclusion"] == "neutral"
    assert "by `maintainer` on `2026-01-02`: `it is clearer this way`" in comment["body"]
    assert (comment_id, "+1") in github.reactions
    assert TOKEN not in "".join(done.stdout + done.stderr for done in outputs)
