"""The recipes for Buildkite, Jenkins and GitLab, run as these systems run them."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from tests.ci.forges.test_gitlab import GitLabStandIn, variables
from tests.docs.markdown import ROOT, code_blocks
from tests.http_server import serve
from tests.workflows.changes import Checkout, environment, make_checkout

pytestmark = pytest.mark.slow
OTHER_CI = ROOT / "docs" / "how-to" / "other-ci.md"
EXPECTED = {"documentation": 0, "broken head": 1, "slower": 1}
"""Exit status by change."""


@dataclass(frozen=True)
class Build:
    """How a system shows a build."""

    state: str
    annotation: str = ""


def run(shell: list[str], script: str, folder: Path, variables: dict[str, str]) -> int:
    done = subprocess.run(
        [*shell, "-c", script], cwd=folder, env=variables, capture_output=True, text=True
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode


def buildkite(checkout: Checkout, folder: Path) -> Build:
    """The agent replaces `$$` by `$`, runs the command in bash, and looks at `soft_fail`."""
    (text,) = code_blocks(OTHER_CI, "yaml")
    (step,) = yaml.safe_load(text)["steps"]
    annotation = folder / "annotation.md"
    variables = environment(folder, **{"buildkite-agent": f"cat > {annotation}"})
    variables["BUILDKITE_PULL_REQUEST_BASE_BRANCH"] = "main"
    script = step["command"].replace("$$", "$")
    status = run(["bash", "-e"], script, checkout.folder, variables)
    soft = {entry["exit_status"] for entry in step["soft_fail"]}
    state = "passed" if not status else "soft failed" if status in soft else "failed"
    return Build(state, annotation.read_text() if annotation.exists() else "")


def jenkins(checkout: Checkout, folder: Path) -> Build:
    """`sh` runs `sh -xe`; `returnStatus` gives the status to the `if` lines below it."""
    (text,) = code_blocks(OTHER_CI, "groovy")
    variables = environment(folder) | {"CHANGE_TARGET": "main"}
    (first,) = re.findall(r"sh '''(.*?)'''", text, re.DOTALL)
    assert run(["sh", "-xe"], first, checkout.folder, variables) == 0
    (second,) = re.findall(r"returnStatus: true, script: '(.*?)'\n", text, re.DOTALL)
    status = run(["sh", "-xe"], second, checkout.folder, variables)
    reactions = dict(re.findall(r"if \(status == (\d)\) \{ (error|unstable)\(", text))
    states = {None: "success", "error": "failure", "unstable": "unstable"}
    state = states[reactions.get(str(status))]
    results = ElementTree.parse(checkout.folder / "roofwatch.xml")  # noqa: S314  our own file
    # the plugin `junit` of the `post` section
    if state == "success" and results.getroot().findall(".//failure"):
        state = "unstable"
    return Build(state)


def gitlab(checkout: Checkout, folder: Path) -> tuple[Build, str]:
    """A job fails unless the status is among its `allow_failure`; all scripts are one shell's.

    Returns the measuring job, and the status of the pipeline that the report job set.
    """
    (text,) = code_blocks(ROOT / "docs" / "how-to" / "gitlab.md", "yaml")
    jobs: dict[str, Any] = yaml.safe_load(text)
    shell = ["bash", "-eo", "pipefail"]
    programs = environment(folder)
    measure = programs | {"CI_MERGE_REQUEST_DIFF_BASE_SHA": checkout.base}
    status = run(shell, "\n".join(jobs["measure"]["script"]), checkout.folder, measure)
    allowed = jobs["measure"]["allow_failure"]["exit_codes"]
    state = "success" if not status else "warning" if status in allowed else "failed"
    # with GIT_STRATEGY: none, the report job has the artefacts alone
    artefacts = folder / "report-job"
    (artefacts / "records").mkdir(parents=True)
    for name in jobs["measure"]["artifacts"]["paths"]:
        shutil.copytree(checkout.folder / name, artefacts / name, dirs_exist_ok=True)
    stand_in = GitLabStandIn()
    with serve(stand_in.answer) as stand_in.url:
        report = programs | variables(stand_in, CI_COMMIT_SHA=checkout.head)
        assert run(shell, "\n".join(jobs["report"]["script"]), artefacts, report) == 0
    return Build(state), str(stand_in.statuses[-1]["state"])


@pytest.mark.parametrize(
    ("change", "state", "words"),
    [
        ("documentation", "passed", "no kernel touched"),
        ("broken head", "failed", "The benchmark cannot be loaded"),
        ("slower", "failed", "1 of 1 benchmark slower"),
    ],
)
def test_the_buildkite_recipe(tmp_path: Path, change: str, state: str, words: str) -> None:
    """A change of documentation was red, because `report` could not read its note."""
    build = buildkite(make_checkout(tmp_path, change), tmp_path)

    assert build.state == state
    assert words in build.annotation


@pytest.mark.parametrize(
    ("change", "state"),
    [("documentation", "success"), ("broken head", "failure"), ("slower", "failure")],
)
def test_the_jenkins_recipe(tmp_path: Path, change: str, state: str) -> None:
    """A head that cannot be loaded was only unstable, like a change of documentation."""
    assert jenkins(make_checkout(tmp_path, change), tmp_path).state == state


@pytest.mark.parametrize(
    ("change", "state", "status"),
    [
        ("documentation", "success", "success"),
        ("broken head", "warning", "failed"),
        ("slower", "warning", "failed"),
    ],
)
def test_the_gitlab_recipe(tmp_path: Path, change: str, state: str, status: str) -> None:
    """The measuring job never blocks the pipeline: the status of the report job does."""
    measured, reported = gitlab(make_checkout(tmp_path, change), tmp_path)

    assert (measured.state, reported) == (state, status)
