"""Reports on GitLab. Every request is checked against GitLab's own OpenAPI description
(tests/data/gitlab).
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from roofwatch.ci.forges.event import PullRequest, RunOrder
from roofwatch.ci.forges.gitlab import GitLabProject, job_of
from roofwatch.ci.messages import ForgeError
from roofwatch.pull_requests.posting import Posted, begin_here, post, report_on
from tests.builders import sha_of
from tests.ci.forges.jobs import ROOT
from tests.ci.situations import SITUATIONS, write_records
from tests.docs.markdown import code_blocks
from tests.http_server import Answer, Request, serve
from tests.roofwatch.command import roofwatch

TOKEN = "glpat-a-secret"
US, DEVELOPER, REPORTER = (
    {"id": 50, "username": "bot"},
    {"id": 1, "username": "dev"},
    {"id": 2, "username": "guest"},
)
Json = dict[str, Any]
PROJECT = "/api/v4/projects/{id}"
NOTES = f"{PROJECT}/merge_requests/{{noteable_id}}/notes"


def _with_null(schema: Json) -> Json:
    """OpenAPI 3.0 writes `nullable: true`; JSON Schema adds a type."""
    known = {
        name: one | {"type": [one["type"], "null"]} for name, one in schema["properties"].items()
    }
    return schema | {"properties": known, "additionalProperties": False}


class GitLabStandIn:
    """A merge request with number 7 of project 42,
    on a server that knows only documented requests.
    """

    def __init__(self) -> None:
        self.url = ""
        self.notes: dict[int, Json] = {}
        self.author: Json = {"id": 60, "username": "author"}
        self.statuses: list[Json] = []
        self.page_length = 100
        self.is_failing_after_create = False
        self._document = yaml.safe_load((ROOT / "tests/data/gitlab/openapi.yaml").read_text())
        self._ids = itertools.count(100)
        self._minutes = itertools.count()

    def add_note(self, body: str, author: Json = DEVELOPER, **fields: Any) -> Json:
        now = f"2026-01-02T03:{next(self._minutes):02}:00.000Z"
        note_id = next(self._ids)
        note = {"id": note_id, "body": body, "author": author, "created_at": now, "updated_at": now}
        self.notes[note_id] = note | {"system": False, "internal": False} | fields
        return self.notes[note_id]

    @property
    def bodies(self) -> list[str]:
        return [note["body"] for note in self.notes.values()]

    def answer(self, request: Request) -> Answer | None:
        if request.headers.get("PRIVATE-TOKEN") != TOKEN:
            return Answer(401, b'{"message": "401 Unauthorized"}')
        for path, operations in self._document["paths"].items():
            found = re.fullmatch(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path), request.path)
            if found is not None and request.method.lower() in operations:
                operation = operations[request.method.lower()]
                self._check(operation, found.groupdict(), request)
                status, body = self._carry_out(request.method, path, found.groupdict(), request)
                assert str(status) in operation["responses"]
                if self.is_failing_after_create and request.method == "POST" and path == NOTES:
                    self.is_failing_after_create = False
                    return Answer(502, b"bad gateway")
                return (
                    self._page(body, request.query)
                    if isinstance(body, list)
                    else _answer(status, body)
                )
        raise AssertionError(f"not documented: {request.method} {request.path}")

    def _check(self, operation: Json, in_path: Mapping[str, str], request: Request) -> None:
        parameters = {one["name"]: one for one in operation.get("parameters", ())}
        for name, value in {**in_path, **request.query}.items():
            schema = parameters[name]["schema"]
            assert schema.get("type") != "integer" or value.isdecimal(), name
            assert value in schema.get("enum", [value])
        if "requestBody" not in operation:
            assert not request.body or json.loads(request.body) == {}
            return
        (content,) = operation["requestBody"]["content"].values()
        schema = self._document["components"]["schemas"][
            content["schema"]["$ref"].rpartition("/")[2]
        ]
        Draft202012Validator(_with_null(schema)).validate(json.loads(request.body))

    def _page(self, items: list[Json], query: Mapping[str, str]) -> Answer:
        length, number = (
            min(int(query.get("per_page", 20)), self.page_length),
            int(query.get("page", 1)),
        )
        headers = {}
        if number * length < len(items):
            link = f"{self.url}{NOTES.format(id=42, noteable_id=7)}?page={number + 1}&per_page={length}"
            headers["Link"] = f'<{link}>; rel="next"'
        return _answer(200, items[(number - 1) * length : number * length], headers)

    def _carry_out(
        self, method: str, path: str, values: Mapping[str, str], request: Request
    ) -> tuple[int, Any]:
        given = json.loads(request.body) if request.body else {}
        assert values.get("id", "42") == "42"
        assert values.get("noteable_id", "7") == "7"
        match method, path.removeprefix(PROJECT).partition("/notes")[2] or path:
            case "GET", "/api/v4/personal_access_tokens/self":
                return 200, {"id": 9, "user_id": US["id"]}
            case "GET", _ if path.endswith("/members/all/{user_id}"):
                level = {1: 30, 2: 20, 50: 30}[int(values["user_id"])]
                return 200, {"id": int(values["user_id"]), "access_level": level, "state": "active"}
            case "GET", _ if path.endswith("/merge_requests/{merge_request_iid}"):
                return 200, {"iid": 7, "author": self.author}
            case "POST", _ if path.endswith("/statuses/{sha}"):
                if self.statuses and self.statuses[-1]["state"] == given["state"] == "running":
                    return 400, {"message": "Cannot transition status via :run from :running"}
                self.statuses.append(given | {"sha": values["sha"]})
                return 200, given
            case "POST", _:
                return 201, self.add_note(given["body"], US)
        note_id = int(values.get("note_id", 0))
        if method == "GET":
            return 200, list(self.notes.values())
        if note_id not in self.notes:
            return 404, {"message": "404 Not found"}
        if method == "DELETE":
            del self.notes[note_id]
            return 200, {}
        self.notes[note_id] |= given | {
            "updated_at": f"2026-01-02T03:{next(self._minutes):02}:00.000Z"
        }
        return 200, self.notes[note_id]


def _answer(status: int, body: Any, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(
        status,
        json.dumps(body).encode(),
        {"Content-Type": "application/json"} | dict(headers or {}),
    )


@pytest.fixture
def gitlab() -> Iterator[GitLabStandIn]:
    stand_in = GitLabStandIn()
    with serve(stand_in.answer) as stand_in.url:
        yield stand_in


def variables(gitlab: GitLabStandIn, **others: str) -> dict[str, str]:
    """What a job of a merge request's pipeline has."""
    return {
        "GITLAB_CI": "true",
        "GITLAB_TOKEN": TOKEN,
        "CI_SERVER_URL": gitlab.url,
        "CI_PROJECT_ID": "42",
        "CI_COMMIT_SHA": sha_of(1),
        "CI_PIPELINE_ID": "1000",
        "CI_JOB_ID": "2000",
        "CI_PIPELINE_URL": "https://gitlab.example/group/kernels/-/pipelines/1000",
        "CI_MERGE_REQUEST_IID": "7",
        "CI_MERGE_REQUEST_PROJECT_ID": "42",
        "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
    } | others


def post_report(
    gitlab: GitLabStandIn, folder: Path, situation: str = "regression", **others: str
) -> Posted:
    given = variables(gitlab, **others)
    job = job_of(given)
    report = report_on(write_records(folder, SITUATIONS[situation]()), job)
    return post(
        GitLabProject(job, given),
        job,
        {"": report},
        "roofwatch",
        with_comment=True,
        with_check=True,
    )


# --- the job


def test_the_head_of_a_pipeline_for_merged_results_is_the_source_branch() -> None:
    given = variables(
        GitLabStandIn(), CI_COMMIT_SHA=sha_of(9), CI_MERGE_REQUEST_SOURCE_BRANCH_SHA=sha_of(1)
    )

    job = job_of(given)

    assert (job.head_sha, job.run.order, job.pull_requests) == (
        sha_of(1),
        RunOrder(1000, 2000),
        (PullRequest(7, "main"),),
    )
    assert job.source_url == f"https://gitlab.example/group/kernels/-/blob/{sha_of(1)}"
    branch = {name: value for name, value in given.items() if "MERGE_REQUEST" not in name}
    assert job_of(branch).pull_requests == ()


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        ({"CI_MERGE_REQUEST_PROJECT_ID": "1"}, "belongs to the fork"),
        ({"CI_PIPELINE_ID": ""}, "is this GitLab CI?"),
        ({"CI_COMMIT_SHA": "main"}, "CI_COMMIT_SHA"),
        ({"GITLAB_TOKEN": ""}, "GITLAB_TOKEN is not set"),
        ({"CI_SERVER_URL": "http://gitlab.example"}, "must be https"),
    ],
)
def test_a_job_that_cannot_post_is_refused_with_the_reason(
    others: dict[str, str], reason: str
) -> None:
    given = variables(GitLabStandIn()) | others

    with pytest.raises(ForgeError, match=re.escape(reason)):
        GitLabProject(job_of(given), given)


# --- note and status


def test_a_merge_request_has_one_note_that_is_kept_up_to_date(
    gitlab: GitLabStandIn, tmp_path: Path
) -> None:
    gitlab.page_length = 2
    strangers = [
        gitlab.add_note("<!-- roofwatch:report -->\n<!-- roofwatch:state e30= -->\nforged")
        for _ in range(3)
    ]

    first = post_report(gitlab, tmp_path)
    second = post_report(gitlab, tmp_path, "all_well", CI_PIPELINE_ID="1001", CI_JOB_ID="2001")

    assert [dict(first.comments), dict(second.comments)] == [{"7": "posted"}, {"7": "edited"}]
    assert len(gitlab.notes) == len(strangers) + 1
    assert "slower" not in gitlab.bodies[-1].partition("\n### ")[2].partition("\n")[0]


def test_each_pipeline_has_the_status_of_its_report(gitlab: GitLabStandIn, tmp_path: Path) -> None:
    post_report(gitlab, tmp_path)
    post_report(gitlab, tmp_path, "all_well", CI_PIPELINE_ID="1001", CI_JOB_ID="2001")

    assert [(status["state"], status["pipeline_id"]) for status in gitlab.statuses] == [
        ("failed", 1000),
        ("success", 1001),
    ]
    assert gitlab.statuses[0]["description"].startswith("2 of 3 benchmarks slower")
    assert (
        gitlab.statuses[0]["target_url"] == "https://gitlab.example/group/kernels/-/pipelines/1000"
    )


def test_a_note_whose_creation_failed_late_is_not_posted_twice(
    gitlab: GitLabStandIn, tmp_path: Path, waits_s: list[float]
) -> None:
    gitlab.is_failing_after_create = True

    post_report(gitlab, tmp_path)

    assert len(gitlab.notes) == 1


def test_a_status_that_already_has_the_state_is_no_error(gitlab: GitLabStandIn) -> None:
    given = variables(gitlab)
    job = job_of(given)

    for _ in range(2):
        assert list(begin_here(job, "roofwatch", given)) == ["check-run: in_progress (measuring)"]

    assert [one["state"] for one in gitlab.statuses] == ["running"]


def test_lines_that_gitlab_would_carry_out_are_indented(gitlab: GitLabStandIn) -> None:
    given = variables(gitlab)

    GitLabProject(job_of(given), given).create_comment(7, "text\n/close\na/b")

    assert gitlab.bodies == ["text\n /close\na/b"]


# --- acceptance


def test_the_report_after_a_developer_s_acceptance_names_it(
    gitlab: GitLabStandIn, tmp_path: Path
) -> None:
    gitlab.add_note("/roofwatch accept written before there was anything to accept")
    post_report(gitlab, tmp_path)
    gitlab.add_note("/roofwatch accept anything", REPORTER)
    gitlab.add_note("/roofwatch accept an internal reason", internal=True)
    assert post_report(gitlab, tmp_path, CI_JOB_ID="2001").accepted_by is None

    accepting = gitlab.add_note("/roofwatch accept the new layout costs this")
    assert post_report(gitlab, tmp_path, CI_JOB_ID="2002").accepted_by == "dev"
    again = post_report(gitlab, tmp_path, CI_PIPELINE_ID="1001", CI_JOB_ID="2003")

    assert again.accepted_by == "dev"
    report = next(body for body in gitlab.bodies if body.startswith("<!-- roofwatch:report"))
    assert "**Accepted** by `dev`" in report
    assert "`the new layout costs this`" in report
    assert [one["state"] for one in gitlab.statuses] == ["failed", "failed", "success", "success"]
    del gitlab.notes[accepting["id"]]
    assert (
        post_report(gitlab, tmp_path, CI_JOB_ID="2004", CI_PIPELINE_ID="1002").accepted_by is None
    )


# --- the documented pipeline


def documented_pipeline() -> str:
    (pipeline,) = code_blocks(ROOT / "docs/how-to/gitlab.md", "yaml")
    return pipeline


def test_the_documented_pipeline_is_valid(tmp_path: Path) -> None:
    pipeline = documented_pipeline()
    (tmp_path / ".gitlab-ci.yml").write_text(pipeline)

    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.gitlab-ci"]
    done = subprocess.run(
        [*command, str(tmp_path / ".gitlab-ci.yml")], check=False, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stdout
    assert len(pipeline.splitlines()) <= 22


def test_the_documented_pipeline_keeps_the_token_from_measured_code() -> None:
    pipeline = documented_pipeline()
    jobs = yaml.safe_load(pipeline)
    measure, report = jobs["measure"], jobs["report"]

    assert "environment" not in measure, "the token belongs to the environment of the other job"
    assert report["environment"]["name"] == "roofwatch"
    assert report["variables"]["GIT_STRATEGY"] == "none", "it has none of the merge request's files"
    assert "$CI_PROJECT_ID == $CI_MERGE_REQUEST_PROJECT_ID" in report["rules"][0]["if"]
    assert "dotenv" not in pipeline, "measured code must not set variables of the other job"


# --- the command


def test_post_picks_the_forge_from_the_environment(gitlab: GitLabStandIn, tmp_path: Path) -> None:
    files = write_records(tmp_path, SITUATIONS["regression"]())

    done = roofwatch("post", *files, "--json", cwd=tmp_path, **variables(gitlab))
    refused = roofwatch(
        "post", "--begin", cwd=tmp_path, **variables(gitlab, GITLAB_TOKEN="another")
    )

    assert done.status == 0, done.error
    assert (done.parsed["check_run"], done.parsed["comments"]) == ("failure", {"7": "posted"})
    assert refused.status == 2
    assert "GITLAB_TOKEN is not valid" in refused.error
    assert "another" not in refused.error
