"""Run the jobs of workflow files as a runner of GitHub Actions would: the scripts of their steps,
as plain bash.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from tests.ci.forges.stand_in import REPOSITORY, TOKEN, GitHubStandIn
from tests.docs.markdown import code_blocks
from tests.git_repository import git
from tests.workflows.github_expressions import Values, fill, holds

ROOT = Path(__file__).parents[3]
WORKFLOWS = ROOT / ".github" / "workflows"
ACTION = ROOT / "action.yml"
OWN_WORKFLOW = re.compile(
    r"roofwatch/roofwatch/\.github/workflows/([\w-]+\.yml)@<commit>|\$/\.github/workflows/([\w-]+\.yml)"
)
PAGES = "github-pages"
"""Name of the artifact that GitHub Pages takes."""
OWN_ACTION = {"roofwatch/roofwatch@<commit>", "./.roofwatch"}


def documented_workflow(document: str, text: str) -> str:
    """Return the workflow in a document that contains a text."""
    shown = [block for block in code_blocks(ROOT / document, "yaml") if "jobs:" in block]
    (found,) = [workflow for workflow in shown if text in workflow]
    return found


def inputs_of(declared: Values, given: Values) -> Values:
    return {name: one.get("default", "") for name, one in declared.items()} | given


@dataclass
class Runner:
    """Runs jobs on one event in prepared checkouts."""

    github: GitHubStandIn
    event_name: str
    event: Values
    checkout: Path
    artifacts: Path | None = None
    """What the jobs of an example hand over to each other."""
    run_id: int = 99
    action_path: Path = ROOT
    is_installed: bool = False
    """Install roofwatch as the action does, and not run the tests' own."""
    environment: dict[str, str] = field(default_factory=dict)
    settings: Values = field(default_factory=dict)
    """Contexts `vars` and `secrets` of the repository, which a fork has not."""
    saw_token: list[str] = field(default_factory=list)
    """Scripts that had a token."""
    outputs: list[str] = field(default_factory=list)

    @property
    def temp(self) -> Path:
        return self.checkout.parent / "runner-temp"

    @property
    def summary_file(self) -> Path:
        return self.checkout.parent / "summary.md"

    def called_job(self, caller: str, name: str, **needs: Values) -> Values | None:
        """Run a job of the reusable workflow that a caller's only job uses; return its outputs,
        None if skipped.
        """
        (job,) = yaml.safe_load(caller)["jobs"].values()
        found = OWN_WORKFLOW.fullmatch(job["uses"])
        assert found is not None
        called = yaml.safe_load((WORKFLOWS / (found[1] or found[2])).read_text())
        inputs = inputs_of(called[True]["workflow_call"]["inputs"], job.get("with", {}))
        return self.job(called["jobs"][name], {"inputs": inputs, "needs": needs})

    def job(self, job: Values, more: Values) -> Values | None:
        """Run a job for each entry of its matrix; return its outputs, None if it is skipped."""
        contexts = self._contexts() | more
        if not holds(job.get("if"), contexts):
            return None
        matrix: Values = job.get("strategy", {}).get("matrix", {})
        values = [fill(entries, contexts) for entries in matrix.values()]
        outputs: Values = {}
        for combination in product(*values):
            entry = dict(zip(matrix, combination, strict=True))
            filled = contexts | {"matrix": entry, "steps": {}}
            self._steps(job["steps"], filled)
            outputs = {name: fill(text, filled) for name, text in job.get("outputs", {}).items()}
        return outputs

    def _steps(self, steps: list[Values], contexts: Values) -> None:
        for step in steps:
            if not holds(step.get("if"), contexts):
                continue
            given = {name: fill(value, contexts) for name, value in step.get("with", {}).items()}
            uses = step.get("uses", "")
            if uses in OWN_ACTION:
                action = yaml.safe_load(ACTION.read_text())
                inner = self._contexts() | {
                    "inputs": self._filled_inputs(action["inputs"], given),
                    "steps": {},
                }
                self._steps(action["runs"]["steps"], inner)
                outputs = {
                    name: fill(one["value"], inner) for name, one in action["outputs"].items()
                }
                contexts["steps"][step.get("id", "")] = {"outputs": outputs}
            elif uses.startswith("actions/download-artifact@"):
                self._download(given, self.checkout / given["path"])
            elif uses.startswith("actions/upload-artifact@"):
                self._upload(self._artifact(given["name"]), given["path"].split())
            elif uses.startswith("actions/upload-pages-artifact@"):
                self._copy(self.checkout / given["path"], self._artifact(PAGES), ["**/*"])
            elif uses.startswith("actions/deploy-pages@"):
                assert (self._artifact(PAGES) / "index.html").exists()
            elif "run" in step:
                variables = {
                    name: str(fill(value, contexts)) for name, value in step.get("env", {}).items()
                }
                contexts["steps"][step.get("id", "")] = {
                    "outputs": self._run(step["run"], variables)
                }
            elif uses.startswith("actions/checkout@"):
                self._check_out(given, may_fail=bool(step.get("continue-on-error")))
            else:
                assert uses.startswith("actions/setup-python@"), step

    def _filled_inputs(self, declared: Values, given: Values) -> Values:
        return {
            name: fill(value, self._contexts())
            for name, value in inputs_of(declared, given).items()
        }

    def _run(self, script: str, variables: dict[str, str]) -> Values:
        self.temp.mkdir(exist_ok=True)
        if "install.sh" in script and not self.is_installed:
            installed = self.temp / "roofwatch" / "bin" / "roofwatch"
            installed.parent.mkdir(parents=True, exist_ok=True)
            installed.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m roofwatch "$@"\n')
            installed.chmod(0o755)
            return {}
        output = self.temp / "github-output"
        output.write_text("")
        known = actions_variables(
            self.github, self.event_name, self.event, self.temp / "event.json", run_id=self.run_id
        ) | {
            "GITHUB_STEP_SUMMARY": str(self.summary_file),
            "GITHUB_OUTPUT": str(output),
            "RUNNER_TEMP": str(self.temp),
            "GITHUB_ACTION_PATH": str(self.action_path),
        }
        if TOKEN in variables.values():
            self.saw_token.append(script)
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=self.checkout,
            env={**os.environ, **known, **self.environment, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        self.outputs.append(done.stdout + done.stderr)
        assert done.returncode == 0, done.stdout + done.stderr
        return dict(line.split("=", 1) for line in output.read_text().splitlines())

    def _artifact(self, name: str) -> Path:
        return (self.artifacts or self.checkout.parent / "artifacts") / name

    def _check_out(self, given: Values, *, may_fail: bool) -> None:
        """Clone another branch into a folder; the first check-out and the action's are prepared."""
        if "ref" not in given or "path" not in given or "repository" in given:
            return
        origin = git(self.checkout, "remote", "get-url", "origin")
        if git(self.checkout, "ls-remote", "--heads", origin, given["ref"]):
            git(self.checkout, "clone", "--quiet", "--branch", given["ref"], origin, given["path"])
        else:
            assert may_fail, f"there is no branch {given['ref']}"

    def _download(self, given: Values, target: Path) -> None:
        """Put each artifact that matches a pattern into a folder of its name, and one that is named
        into the target, as the action does.
        """
        shutil.rmtree(target, ignore_errors=True)
        if "name" in given:
            self._copy(self._artifact(given["name"]), target, ["**/*"])
            return
        for artifact in self._artifact("").glob(given["pattern"]):
            self._copy(artifact, target / artifact.name, ["**/*"])

    def _upload(self, artifact: Path, patterns: list[str]) -> None:
        """Copy files as the action does: below the folder that all patterns share before their
        first wildcard.
        """
        fixed = [pattern.partition("*")[0].rpartition("/")[0] for pattern in patterns]
        shared = os.path.commonpath(fixed) if all(fixed) else ""
        inner = [pattern.removeprefix(f"{shared}/") if shared else pattern for pattern in patterns]
        self._copy(self.checkout / shared, artifact, inner)

    def _copy(self, source: Path, target: Path, patterns: list[str]) -> None:
        for pattern in patterns:
            for file in filter(Path.is_file, source.glob(pattern)):
                (target / file.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, target / file.relative_to(source))

    def _contexts(self) -> Values:
        github = {
            "token": TOKEN,
            "event": self.event,
            "event_name": self.event_name,
            "run_id": self.run_id,
        }
        return {
            "github": github,
            "secrets": {},
            "vars": {},
            "job": {"workflow_repository": "roofwatch/roofwatch", "workflow_sha": "0" * 40},
        } | self.settings


def actions_variables(
    github: GitHubStandIn,
    event_name: str,
    event: dict[str, Any],
    event_file: Path,
    *,
    run_id: int = 99,
) -> dict[str, str]:
    """Write the file of an event, and return the variables that GitHub Actions sets for it."""
    event_file.write_text(json.dumps(event))
    return {
        "GITHUB_API_URL": github.url,
        "GITHUB_SERVER_URL": "https://github.example",
        "GITHUB_REPOSITORY": REPOSITORY,
        "GITHUB_EVENT_NAME": event_name,
        "GITHUB_EVENT_PATH": str(event_file),
        "GITHUB_RUN_ID": str(run_id),
        "GITHUB_RUN_ATTEMPT": "1",
    }


def comment_event(comment: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The event of a new comment on pull request 7."""
    return {
        "action": "created",
        "issue": {"number": 7, "pull_request": {"url": "https://github.example"}},
        "comment": comment,
        "repository": {"default_branch": "main"},
    } | fields


def label_event(name: str, head_sha: str, login: str) -> dict[str, Any]:
    """The event of a label on pull request 7."""
    found = {"number": 7, "head": {"sha": head_sha}, "updated_at": "2026-01-02T03:04:05Z"}
    sender = {"login": login, "type": "User"}
    return {"action": "labeled", "label": {"name": name}, "pull_request": found, "sender": sender}


def workflow_run_event(
    action: str, head_sha: str, conclusion: str | None = None, **fields: Any
) -> dict[str, Any]:
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
