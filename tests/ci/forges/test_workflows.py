"""Permissions, conditions and commands of the shipped and the documented workflows, and of the
action.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ci.forges.jobs import (
    ACTION,
    OWN_WORKFLOW,
    ROOT,
    WORKFLOWS,
    documented_workflow,
    label_event,
    workflow_run_event,
)
from tests.docs.command_line import check_line
from tests.workflows.github_expressions import evaluate, fill, holds

FILES = [*sorted(WORKFLOWS.glob("*.yml")), ACTION]
WRITTEN_BY = {
    ("report.yml", "report"): {"checks", "pull-requests"},
    ("report.yml", "command"): {"actions", "checks", "pull-requests"},
    ("report.yml", "answer"): {"checks", "pull-requests"},
    ("roofwatch-report.yml", "report"): {"actions", "checks", "pull-requests"},
    ("docs.yml", "publish"): {"id-token", "pages"},
    ("release.yml", "publish"): {"id-token"},
}
CALLERS = [
    ("README.md", "measure.yml@<commit>", "roofwatch.yml"),
    ("README.md", "report.yml@<commit>", "roofwatch-report.yml"),
    ("docs/how-to/github.md", "measure.yml@<commit>", "roofwatch.yml"),
    ("docs/how-to/github.md", "report.yml@<commit>", "roofwatch-report.yml"),
]
ONE_STEP = documented_workflow("docs/how-to/github.md", "uses: roofwatch/roofwatch@<commit>")
SCRIPTS = {'"$GITHUB_ACTION_PATH/install.sh"', 'bash -euo pipefail -c "$SETUP"', "make docs"}


def name_of(path: Path) -> str:
    return path.name


def jobs_of(name: str) -> dict[str, Any]:
    jobs: dict[str, Any] = yaml.safe_load((WORKFLOWS / name).read_text())["jobs"]
    return jobs


JOBS = [
    (path.name, name) for path in sorted(WORKFLOWS.glob("*.yml")) for name in jobs_of(path.name)
]


def steps_of(path: Path) -> Iterator[dict[str, Any]]:
    document = yaml.safe_load(path.read_text())
    for job in [document["runs"]] if path == ACTION else document["jobs"].values():
        yield from job.get("steps", ())


def test_every_workflow_matches_github_s_schemas(
    tmp_path: Path,
) -> None:
    shown = [documented_workflow(document, text) for document, text, _ in CALLERS]
    for number, text in enumerate([*shown, ONE_STEP]):
        (tmp_path / f"{number}.yml").write_text(text)
    workflows = [*sorted(WORKFLOWS.glob("*.yml")), *tmp_path.glob("*.yml")]

    for schema, files in (("actions", [ACTION]), ("workflows", workflows)):
        command = [
            sys.executable,
            "-m",
            "check_jsonschema",
            "--builtin-schema",
            f"vendor.github-{schema}",
        ]
        done = subprocess.run(
            [*command, *map(str, files)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("document", "text", "own"), CALLERS)
def test_the_documented_workflows_are_those_of_this_repository_with_inputs_that_exist(
    document: str, text: str, own: str
) -> None:
    shown, ours = (
        yaml.safe_load(documented_workflow(document, text)),
        yaml.safe_load((WORKFLOWS / own).read_text()),
    )
    (theirs,), (job,) = shown["jobs"].values(), ours["jobs"].values()
    called = OWN_WORKFLOW.fullmatch(theirs["uses"])
    assert called is not None

    assert (shown["name"], shown[True], shown["permissions"]) == (
        ours["name"],
        ours[True],
        ours["permissions"],
    )
    assert theirs["permissions"] == job["permissions"]
    assert {*theirs["with"], *job["with"]} <= {
        *yaml.safe_load((WORKFLOWS / called[1]).read_text())[True]["workflow_call"]["inputs"]
    }


def test_the_documented_workflows_are_short() -> None:
    both = [
        documented_workflow("README.md", text)
        for text in ("measure.yml@<commit>", "report.yml@<commit>")
    ]

    assert len("".join(both).splitlines()) <= 20
    assert len(ONE_STEP.splitlines()) <= 20


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_step_runs_one_command_without_interpolation(path: Path) -> None:
    lines = [step["run"] for step in steps_of(path) if "run" in step]

    for line in lines:
        assert "\n" not in line.strip()
        assert "${{" not in line
        if line not in SCRIPTS and not line.startswith("python -m pip install"):
            check_line(
                line.replace('"$RUNNER_TEMP/roofwatch/bin/roofwatch"', "roofwatch").replace(
                    "$MODE", "all"
                )
            )


@pytest.mark.parametrize("file", sorted({file for file, _ in JOBS}))
def test_a_workflow_gives_no_permission_to_all_of_its_jobs(file: str) -> None:
    document = yaml.safe_load((WORKFLOWS / file).read_text())

    assert document["permissions"] == {}


@pytest.mark.parametrize(("file", "name"), JOBS)
def test_only_jobs_that_report_may_write(file: str, name: str) -> None:
    job = yaml.safe_load((WORKFLOWS / file).read_text())["jobs"][name]

    written = {permission for permission, access in job["permissions"].items() if access != "read"}
    assert written == WRITTEN_BY.get((file, name), set())


@pytest.mark.parametrize(("file", "name"), JOBS)
def test_a_job_has_a_time_limit(file: str, name: str) -> None:
    job = yaml.safe_load((WORKFLOWS / file).read_text())["jobs"][name]

    # a job that calls a workflow has the limits of the jobs in there
    assert "uses" in job or "timeout-minutes" in job


@pytest.mark.parametrize(
    ("file", "name"), [key for key in JOBS if key in WRITTEN_BY and key[0] == "report.yml"]
)
def test_a_job_with_write_access_runs_no_code_of_the_pull_request(file: str, name: str) -> None:
    steps = jobs_of(file)[name]["steps"]

    assert [step["uses"].partition("@")[0] for step in steps] == [
        "actions/checkout",
        "./.roofwatch",
    ]
    checkout, action = (step["with"] for step in steps)
    assert (checkout["repository"], checkout["ref"]) == (
        "${{ job.workflow_repository }}",
        "${{ job.workflow_sha }}",
    )
    assert action["mode"] == "report"


@pytest.mark.parametrize("file", ["measure.yml", "report.yml"])
def test_a_job_that_runs_untrusted_code_sees_no_credential(file: str) -> None:
    job = jobs_of(file)["measure"]
    (token,) = [
        step["env"]["GITHUB_TOKEN"]
        for step in steps_of(ACTION)
        if "GITHUB_TOKEN" in step.get("env", {})
    ]

    assert job["permissions"] == {"contents": "read"}
    assert "secrets." not in str(job)
    assert "github.token" not in str(job)
    assert all(
        not step["with"]["persist-credentials"]
        for step in job["steps"]
        if "checkout" in step.get("uses", "")
    )
    assert job["steps"][-1]["with"]["mode"] == "measure"
    for mode, seen in (("measure", ""), ("report", "x"), ("all", "x")):
        assert fill(token, {"inputs": {"mode": mode, "token": "x"}}) == seen


def test_the_job_that_has_the_token_of_the_queue_runs_no_command_of_the_repository() -> None:
    job = jobs_of("report.yml")["queue"]

    assert job["permissions"] == {"contents": "read"}
    assert [step for step in job["steps"] if "run" in step] == []
    given = job["steps"][-1]["with"]
    assert (given["mode"], given["queue"]) == ("measure", "${{ inputs.queue }}")
    assert "python" not in given
    installs, *_ = steps_of(ACTION)
    contexts = {"inputs": {"mode": "measure", "queue": "h100", "python": ".venv/bin/python"}}
    seen = {name: fill(text, contexts) for name, text in installs["env"].items()}
    assert seen == {"MODE": "report", "PYTHON": "python3"}


@pytest.mark.parametrize(
    ("queue", "hosted", "queued"), [("", "all", ""), ("h100", "bisections", "runs")]
)
def test_a_requested_run_goes_to_the_queue_if_there_is_one(
    queue: str, hosted: str, queued: str
) -> None:
    outputs = {"requests": "all", "queueable": "runs", "unqueueable": "bisections"}
    contexts = {"inputs": {"queue": queue}, "steps": {"command": {"outputs": outputs}}}
    made = jobs_of("report.yml")["command"]["outputs"]

    assert fill(made["hosted"], contexts) == hosted
    assert fill(made["queued"], contexts) == queued


@pytest.mark.parametrize(
    ("event", "fields", "wanted", "is_measured"),
    [
        ("pull_request", {"draft": False, "labels": []}, "", True),
        ("pull_request", {"draft": True, "labels": []}, "", False),
        ("pull_request", {"draft": False, "labels": [{"name": "x"}]}, "perf", False),
        ("pull_request", {"draft": False, "labels": [{"name": "perf"}]}, "perf", True),
        ("pull_request", {"draft": True, "labels": [{"name": "perf"}]}, "perf", False),
        ("merge_group", None, "perf", True),
    ],
)
def test_only_wanted_pull_requests_are_measured(
    event: str, fields: dict[str, Any] | None, wanted: str, is_measured: bool
) -> None:
    condition = jobs_of("measure.yml")["measure"]["if"]
    github = {
        "event_name": event,
        "event": {"pull_request": fields} if fields else {"merge_group": {}},
    }

    assert holds(condition, {"github": github, "inputs": {"label": wanted}}) == is_measured


COMMENT = {"body": "/roofwatch rerun"}


@pytest.mark.parametrize(
    ("event_name", "event", "started"),
    [
        ("workflow_run", workflow_run_event("completed", "0" * 40), {"report"}),
        (
            "workflow_run",
            workflow_run_event("completed", "0" * 40, event="merge_group"),
            {"report"},
        ),
        ("workflow_run", workflow_run_event("completed", "0" * 40, event="push"), set()),
        (
            "issue_comment",
            {"issue": {"pull_request": {"url": "x"}}, "comment": COMMENT},
            {"command"},
        ),
        (
            "issue_comment",
            {"issue": {"pull_request": {"url": "x"}}, "comment": {"body": "nice"}},
            set(),
        ),
        ("issue_comment", {"issue": {}, "comment": COMMENT}, set()),
        ("pull_request_target", label_event("roofwatch run h100", "0" * 40, "x"), {"command"}),
        ("pull_request_target", label_event("bug", "0" * 40, "x"), set()),
    ],
)
def test_an_event_starts_the_job_that_it_needs(
    event_name: str, event: dict[str, Any], started: set[str]
) -> None:
    contexts = {"github": {"event_name": event_name, "event": event}, "needs": {}}

    assert {
        name for name in ("report", "command") if holds(jobs_of("report.yml")[name]["if"], contexts)
    } == started


@pytest.mark.parametrize(
    ("request_", "runner"),
    [
        ({"verb": "run", "runner": ""}, "gpu"),
        ({"verb": "run", "runner": "h100"}, "h100"),
        ({"verb": "bisect", "runner": ""}, "ubuntu-latest"),
        ({"verb": "bisect", "runner": "h100"}, "h100"),
    ],
)
def test_a_request_is_measured_on_its_runner(request_: dict[str, str], runner: str) -> None:
    inputs = {"gpu-runner": "gpu", "runner": "ubuntu-latest"}

    assert (
        fill(
            jobs_of("report.yml")["measure"]["runs-on"],
            {"matrix": {"request": request_}, "inputs": inputs},
        )
        == runner
    )


@pytest.mark.parametrize(
    ("mode", "event_name", "action", "request_", "is_taken"),
    [
        ("report", "workflow_run", "completed", "", True),
        ("report", "workflow_run", "requested", "", False),
        ("report", "issue_comment", "created", "", False),
        ("report", "issue_comment", "created", "{}", True),
        ("measure", "issue_comment", "created", "{}", False),
        ("all", "pull_request", "opened", "", False),
    ],
)
def test_records_are_taken_over_where_another_job_measured(
    mode: str, event_name: str, action: str, request_: str, is_taken: bool
) -> None:
    (step,) = [step for step in steps_of(ACTION) if "download-artifact" in step.get("uses", "")]
    github = {"event_name": event_name, "event": {"action": action}}

    assert (
        bool(
            evaluate(step["if"], {"github": github, "inputs": {"mode": mode, "request": request_}})
        )
        == is_taken
    )


@pytest.mark.parametrize(
    ("part", "runner", "label"),
    [
        ("", "ubuntu-latest", "ubuntu-latest"),
        ("h200", '["self-hosted", "h200"]', ["self-hosted", "h200"]),
        ("x", '{"group": "gpus", "labels": ["x"]}', {"group": "gpus", "labels": ["x"]}),
    ],
)
def test_a_runner_is_named_in_every_way_that_github_accepts(
    part: str, runner: str, label: Any
) -> None:
    """It was one label."""
    inputs = {"part": part, "runner": runner}

    assert fill(jobs_of("measure.yml")["measure"]["runs-on"], {"inputs": inputs}) == label


def test_measurements_of_one_pull_request_do_not_cancel_each_other() -> None:
    """The second cancelled the first, and their artifacts had one name."""
    group = yaml.safe_load((WORKFLOWS / "measure.yml").read_text())["concurrency"]["group"]
    (upload,) = [step for step in steps_of(ACTION) if "upload-artifact" in step.get("uses", "")]
    github = {"workflow": "roofwatch", "event": {"pull_request": {"number": 7}}, "ref": "r"}
    variants = [
        {"suite": "bench_a.py", "part": "hosted", "runner": "ubuntu-latest"},
        {"suite": "bench_a.py", "part": "h200", "runner": '["self-hosted", "h200"]'},
        {"suite": "bench_b.py", "part": "b", "runner": "ubuntu-latest"},
    ]

    groups = {fill(group, {"github": github, "inputs": inputs}) for inputs in variants}
    names = {fill(upload["with"]["name"], {"inputs": inputs}) for inputs in variants}

    assert len(groups) == 3
    assert names == {f"roofwatch-records-{inputs['part']}" for inputs in variants}
    unnamed = fill(upload["with"]["name"], {"inputs": {"part": "", "request": ""}})
    assert unnamed == "roofwatch-records-pull-request"


def test_a_job_at_its_time_limit_hands_over_its_journal() -> None:
    """A cancelled job uploaded nothing."""
    (upload,) = [step for step in steps_of(ACTION) if "upload-artifact" in step.get("uses", "")]

    inputs = {"inputs": {"mode": "measure"}}
    assert holds(upload["if"], inputs, status="cancelled")
    assert "roofwatch-records/*.journal" in upload["with"]["path"].split()


def documented_files(folder: Path) -> list[Path]:
    """The documented workflows, with a commit of roofwatch."""
    texts = [documented_workflow(document, text) for document, text, _ in CALLERS]
    files = []
    for number, text in enumerate([*texts, ONE_STEP]):
        files.append(folder / f"{number}.yml")
        files[-1].write_text(text.replace("<commit>", "0" * 40))
    return files


@pytest.mark.parametrize("linter", ["zizmor", "actionlint"])
def test_linters_of_workflows_find_nothing(linter: str, tmp_path: Path) -> None:
    """zizmor had findings in the documented workflows."""
    program = shutil.which(linter) or shutil.which(linter, path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip(f"{linter} is not installed")
    commands: list[list[str | Path]] = [[]]
    if linter == "zizmor":
        options = ["--offline", "--no-progress"]
        commands = [[*options, "--persona", "pedantic", *FILES]]
        commands.append([*options, *documented_files(tmp_path)])

    for arguments in commands:
        done = subprocess.run(
            [program, *map(str, arguments)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
