"""Permissions and commands of the shipped workflows and the action."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from roofwatch.ci.github.commands import BISECT_WORKFLOW
from tests.ci.github.jobs import ROOT, WORKFLOWS
from tests.docs.command_line import check_line

ACTION = ROOT / "action.yml"
FILES = [*sorted(WORKFLOWS.glob("*.yml")), ACTION]
WRITTEN_BY = {
    "report.yml": {"checks", "pull-requests"},
    "command.yml": {"actions", "checks", "pull-requests"},
    "docs.yml": {"id-token", "pages"},
}
INSTALLING = re.compile(r"python -m pip install --quiet --constraint \S+ \S+")


def name_of(path: Path) -> str:
    return path.name


def steps_of(path: Path) -> Iterator[dict[str, Any]]:
    document = yaml.safe_load(path.read_text())
    jobs = [document["runs"]] if path == ACTION else document["jobs"].values()
    for job in jobs:
        yield from job["steps"]


@pytest.mark.parametrize(
    ("schema", "files"), [("actions", [ACTION]), ("workflows", sorted(WORKFLOWS.glob("*.yml")))], ids=["action", "all"]
)
def test_the_files_match_github_s_schema(schema: str, files: list[Path]) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.github-{schema}"]

    done = subprocess.run([*command, *map(str, files)], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_step_runs_one_command_without_interpolation(path: Path) -> None:
    lines = [step["run"] for step in steps_of(path) if "run" in step]

    assert lines
    for line in lines:
        assert "\n" not in line.strip()
        assert "${{" not in line
        assert line == "make docs" or line.startswith("roofwatch ") or INSTALLING.fullmatch(line), line
        if line.startswith("roofwatch ") and "$ARGUMENTS" not in line:
            check_line(line)


@pytest.mark.parametrize("path", sorted(WORKFLOWS.glob("*.yml")), ids=name_of)
def test_permissions_are_listed_and_only_report_and_commands_may_write(path: Path) -> None:
    document = yaml.safe_load(path.read_text())

    assert document["permissions"] == {}
    jobs = document["jobs"].values()
    written = {name for job in jobs for name, right in job["permissions"].items() if right != "read"}
    assert written == WRITTEN_BY.get(path.name, set())
    assert all(job["timeout-minutes"] > 0 for job in jobs)


@pytest.mark.parametrize("name", ["report.yml", "command.yml"])
def test_the_job_with_write_access_runs_no_code_of_the_pull_request(name: str) -> None:
    text = (WORKFLOWS / name).read_text()

    checkouts = [step for step in steps_of(WORKFLOWS / name) if "checkout" in step.get("uses", "")]
    assert [step["with"]["ref"] for step in checkouts] == ["${{ github.event.repository.default_branch }}"]
    for theirs in ("head_sha", "head_branch", "head_repository", "pull_requests", "event.pull_request", "refs/pull"):
        assert theirs not in text


def test_a_command_starts_the_workflow_that_ships_with_the_inputs_that_it_takes() -> None:
    inputs = yaml.safe_load((WORKFLOWS / BISECT_WORKFLOW).read_text())[True]["workflow_dispatch"]["inputs"]

    assert set(inputs) == {"series", "base", "head", "number"}  # as tests/ci/github/test_commands.py sees them sent


@pytest.mark.parametrize("name", ["measure.yml", "bisect.yml"])
def test_the_job_that_runs_untrusted_code_has_no_token_and_no_secret(name: str) -> None:
    text = (WORKFLOWS / name).read_text()

    assert "secrets." not in text
    assert "github.token" not in text
    assert "pull_request_target" not in text


def test_the_action_splits_a_command_at_spaces_and_expands_nothing(tmp_path: Path) -> None:
    step = next(step for step in steps_of(ACTION) if step.get("run", "").startswith("roofwatch "))
    script = tmp_path / "step.sh"
    script.write_text(step["run"])
    echo = tmp_path / "roofwatch"
    echo.write_text('#!/bin/sh\nfor word; do echo "[$word]"; done\n')
    echo.chmod(0o755)
    shell = [word.replace("{0}", str(script)) for word in step["shell"].split()]

    done = subprocess.run(
        shell,
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "ARGUMENTS": "ab * --base $(whoami) ; rm"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.split() == ["[ab]", "[*]", "[--base]", "[$(whoami)]", "[;]", "[rm]"]


@pytest.mark.parametrize(
    ("linter", "arguments"),
    [("zizmor", ["--offline", "--no-progress", "--persona", "pedantic", *map(str, FILES)]), ("actionlint", [])],
)
def test_linters_of_workflows_find_nothing(linter: str, arguments: list[str]) -> None:
    found = shutil.which(linter) or shutil.which(linter, path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip(f"{linter} is not installed")

    done = subprocess.run([found, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout
