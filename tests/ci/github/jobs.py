"""Run the roofwatch commands of a workflow file in the environment of GitHub Actions."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.ci.github.stand_in import REPOSITORY, TOKEN, GitHubStandIn

ROOT = Path(__file__).parents[3]
WORKFLOWS = ROOT / ".github" / "workflows"
_OURS = "roofwatch "


@dataclass(frozen=True)
class Job:
    """A job and its event."""

    workflow: str
    name: str
    event_name: str
    event: dict[str, Any]
    folder: Path
    """Where its check-out is."""

    def run(self, github: GitHubStandIn, **variables: str) -> list[subprocess.CompletedProcess[str]]:
        """Run the lines that call roofwatch, as far as their conditions hold."""
        job = yaml.safe_load((WORKFLOWS / self.workflow).read_text())["jobs"][self.name]
        event_file = self.folder.parent / f"event-{self.workflow}.json"
        summary = {"GITHUB_STEP_SUMMARY": str(self.summary_file)}
        environment = actions_variables(github, self.event_name, self.event, event_file) | summary
        done = []
        for step in job["steps"]:
            if step.get("run", "").startswith(_OURS) and self._holds(step.get("if")):
                given = {name: self._value(text) for name, text in (job.get("env", {}) | step.get("env", {})).items()}
                done.append(self._run_line(step["run"], environment | given | variables))
                assert done[-1].returncode == 0 or step.get("continue-on-error"), done[-1].stderr
        return done

    @property
    def summary_file(self) -> Path:
        return self.folder.parent / f"summary-{self.workflow}.md"

    def _run_line(self, line: str, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **variables}
        return subprocess.run(
            ["bash", "-e", "-c", line], cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )

    def _holds(self, condition: str | None) -> bool:
        if condition is None:
            return True
        found = re.fullmatch(r"github\.event\.(\w+) == '(\w+)'", condition)
        assert found, f"unsupported condition: {condition!r}"
        return bool(self.event[found[1]] == found[2])

    def _value(self, text: str) -> str:
        def look_up(found: re.Match[str]) -> str:
            value: Any = {"github": {"token": TOKEN, "event": self.event}}
            for step in found[1].split("."):
                value = value[step]
            return str(value)

        return re.sub(r"\$\{\{ ([\w.]+) \}\}", look_up, text)


def actions_variables(
    github: GitHubStandIn, event_name: str, event: dict[str, Any], event_file: Path
) -> dict[str, str]:
    """Write the file of an event, and return the variables that GitHub Actions sets for it."""
    event_file.write_text(json.dumps(event))
    return {
        "GITHUB_API_URL": github.url,
        "GITHUB_SERVER_URL": "https://github.example",
        "GITHUB_REPOSITORY": REPOSITORY,
        "GITHUB_EVENT_NAME": event_name,
        "GITHUB_EVENT_PATH": str(event_file),
        "GITHUB_RUN_ID": "99",
        "GITHUB_RUN_ATTEMPT": "1",
    }


def comment_event(comment: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The event of a new comment on pull request 7."""
    return {
        "action": "created",
        "issue": {"number": 7, "pull_request": {}},
        "comment": comment,
        "repository": {"default_branch": "main"},
    } | fields


def workflow_run_event(action: str, head_sha: str, conclusion: str | None = None, **fields: Any) -> dict[str, Any]:
    """The event after a workflow that a pull request from a fork started."""
    run = {
        "id": 4_242,
        "run_attempt": 1,
        "event": "pull_request",
        "head_sha": head_sha,
        "head_branch": "slower",
        "head_repository": {"owner": {"login": "someone"}},
        "pull_requests": [],
        "conclusion": conclusion,
        "html_url": f"https://github.example/{REPOSITORY}/actions/runs/4242",
    }
    return {"action": action, "workflow_run": run | fields}
