"""The commands of the GitHub action for each event, and the base that it compares with."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from roofwatch.ci.messages import ForgeError
from roofwatch.collector.git import merge_base
from roofwatch.pull_requests.github_action import Mode, commands_for
from tests.builders import sha_of
from tests.git_repository import commit_all, git, make_repository

HEAD, BASE = sha_of(1), sha_of(0)
PULL_REQUEST = {"pull_request": {"number": 7, "head": {"sha": HEAD}, "base": {"ref": "main"}}}


def commands(
    mode: Mode,
    event_name: str,
    event: dict[str, Any],
    *,
    base: str = BASE,
    runner_class: str = "",
    **asked: Any,
) -> list[list[str]]:
    arguments = ["--affected", "--tag", "$(x) ;"]
    variables = {"GITHUB_REPOSITORY": "o/r", "GITHUB_EVENT_NAME": event_name, "GITHUB_SHA": HEAD}
    request = {
        "number": 7,
        "head": HEAD,
        "base": "main",
        "runner": "",
        "series": "",
        "reply": "1.0",
    } | asked
    variables |= {"ROOFWATCH_REQUEST": json.dumps(request)} if asked else {}
    if runner_class:
        variables["ROOFWATCH_SERVER_URL"] = "https://roofwatch.example.org"
    return list(
        commands_for(
            mode,
            "bench.py",
            base,
            arguments,
            "roofwatch",
            variables,
            event,
            runner_class=runner_class,
        )
    )


AB = ["ab", "bench.py", "--base", BASE, "--head", HEAD, "--output", "roofwatch-records"]
AB += ["--affected", "--tag", "$(x) ;"]
NAME = ["--name", "roofwatch"]
POST, BEGIN = ["post", "roofwatch-records", *NAME], ["post", "--begin", *NAME]
SUMMARY = [*POST, "--no-comment", "--no-check"]


@pytest.mark.parametrize(
    ("mode", "event_name", "event", "expected"),
    [
        ("all", "pull_request", PULL_REQUEST, [BEGIN, AB, POST]),
        ("all", "merge_group", {"merge_group": {"base_sha": BASE}}, [BEGIN, AB, POST]),
        ("measure", "pull_request", PULL_REQUEST, [AB, SUMMARY]),
        ("measure", "merge_group", {"merge_group": {"base_sha": BASE}}, [AB, SUMMARY]),
        ("report", "workflow_run", {"action": "requested"}, [BEGIN]),
        ("report", "workflow_run", {"action": "completed"}, [POST]),
        ("report", "issue_comment", {"action": "created"}, [["command", *NAME]]),
        ("report", "pull_request_target", {"action": "labeled"}, [["command", *NAME]]),
    ],
)
def test_an_event_becomes_commands(
    mode: Mode, event_name: str, event: dict[str, Any], expected: list[list[str]]
) -> None:
    assert commands(mode, event_name, event) == expected


def test_a_request_is_measured_at_the_commit_that_it_names_whatever_the_event_says() -> None:
    other = {"pull_request": {"number": 8, "head": {"sha": sha_of(5)}, "base": {"ref": "main"}}}

    assert commands("measure", "pull_request_target", other, verb="run") == [AB, SUMMARY]
    bisect = ["bisect", "bench.py", "--series", "a/b", "--good", BASE, "--bad", HEAD, "--json"]
    assert commands("measure", "issue_comment", {}, verb="bisect", series="a/b") == [bisect]
    assert commands("report", "issue_comment", {}, verb="run") == [
        ["command", "roofwatch-records", *NAME]
    ]


@pytest.mark.parametrize("asked", [{"verb": "accept"}, {"verb": "run", "head": "main"}])
def test_an_invalid_request_is_refused(asked: dict[str, str]) -> None:
    with pytest.raises(ForgeError, match="ROOFWATCH_REQUEST is not valid"):
        commands("measure", "issue_comment", {}, **asked)


def event_from(repository: str | None) -> dict[str, Any]:
    """A pull request whose branch is in a repository; None for a deleted one."""
    head = {"sha": HEAD, "repo": repository and {"full_name": repository}}
    return {"pull_request": {"number": 7, "head": head, "base": {"ref": "main"}}}


def test_the_code_of_a_fork_is_queued_only_if_somebody_with_write_access_asked_for_it() -> None:
    measure = [*AB[:8], "--on", "h100", *AB[8:]]

    def queued(event: dict[str, Any], **asked: Any) -> list[list[str]]:
        return commands("measure", "pull_request_target", event, runner_class="h100", **asked)

    assert queued(event_from("o/r")) == [measure, SUMMARY]
    for fork in ("somebody/r", None):
        with pytest.raises(ForgeError, match="write access"):
            queued(event_from(fork))
        assert queued(event_from(fork), verb="run") == [measure, SUMMARY]


def test_a_search_for_a_commit_is_not_queued() -> None:
    with pytest.raises(ForgeError, match="bisect"):
        commands("measure", "issue_comment", {}, runner_class="h100", verb="bisect", series="a/b")


def test_a_queue_takes_the_service_from_the_job_alone() -> None:
    variables = {"GITHUB_REPOSITORY": "o/r", "GITHUB_EVENT_NAME": "push", "GITHUB_SHA": HEAD}
    with pytest.raises(ForgeError, match="server-url"):
        list(
            commands_for(
                "measure", "bench.py", BASE, [], "roofwatch", variables, {}, runner_class="h100"
            )
        )


def test_a_base_is_looked_for_while_measuring_so_that_the_check_ends_if_there_is_none() -> None:
    begin, measure, post = commands("all", "pull_request", PULL_REQUEST, base="auto")

    assert (begin, measure[:4], post) == (BEGIN, ["ab", "bench.py", "--base", "auto"], POST)


def add_commits(folder: Path, branch: str, count: int) -> str:
    """Add empty commits to a branch that starts at `main`'s first commit; return its tip."""
    commits = [
        f"commit refs/heads/{branch}\ncommitter {branch} <a@b> {number} +0000\ndata 0\n"
        for number in range(count)
    ]
    commits[0] += "from refs/tags/base\n"
    stream = "\n".join([*commits, ""]).encode()
    subprocess.run(["git", "fast-import", "--quiet"], input=stream, cwd=folder, check=True)
    return git(folder, "rev-parse", branch)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The merge of two branches of 130 commits, checked out with depth 1, as actions/checkout does
    it.
    """
    origin = make_repository(tmp_path / "origin")
    git(origin, "config", "uploadpack.allowAnySHA1InWant", "true")
    (origin / "file").touch()
    commit_all(origin)
    git(origin, "tag", "base")
    tips = [add_commits(origin, branch, 130) for branch in ("main", "topic")]
    merge = git(origin, "commit-tree", "base^{tree}", "-p", tips[0], "-p", tips[1], "-m", "Merge")
    folder = make_repository(tmp_path / "checkout")
    git(folder, "remote", "add", "origin", origin.as_uri())
    git(folder, "fetch", "--quiet", "--no-tags", "--depth=1", "origin", merge)
    git(folder, "checkout", "--quiet", "--detach", merge)
    return folder


def test_the_merge_base_is_fetched_into_a_shallow_checkout(checkout: Path, tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    head, base, main = (git(origin, "rev-parse", name) for name in ("topic", "base", "main"))

    assert merge_base(checkout, "main", head) == base
    assert merge_base(checkout, main, head) == base, "a merge queue names a commit"
