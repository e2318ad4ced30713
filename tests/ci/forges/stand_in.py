"""A fake GitHub server: comments, check-runs, issues and pull requests,
with pagination and errors.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from roofwatch.ci.forges.client import GitHubRepository
from tests.http_server import Answer, Request, serve

TOKEN = "a-secret-token"
REPOSITORY = "example/project"
BOT = {"login": "github-actions[bot]", "type": "Bot"}
Json = dict[str, Any]


@dataclass
class Failing:
    """How the next requests of an operation fail."""

    operation: str
    answer: Answer | None
    """None: the connection is closed without an answer."""
    times: int = 1
    is_carried_out: bool = False
    """Whether the request is carried out anyway."""


Operation = Callable[..., Any]
"""A method that gets the values of its path, the query and the body."""
_OPERATIONS: list[tuple[str, re.Pattern[str], Operation]] = []


def operation(method: str, path: str) -> Callable[[Operation], Operation]:
    """Register the answer to a request: JSON, None for no content;
    a KeyError is `404 Not Found`.
    """

    def register(answer: Operation) -> Operation:
        _OPERATIONS.append((method, re.compile(f"/repos/{REPOSITORY}/{path}"), answer))
        return answer

    return register


class GitHubStandIn:
    """The state. `url` is what `GITHUB_API_URL` should be."""

    def __init__(self) -> None:
        self.url = ""
        self.page_length = 100
        self.comments: dict[int, Json] = {}
        self.check_runs: dict[int, Json] = {}
        self.issues: dict[int, Json] = {}
        self.pull_requests: list[Json] = []
        self.reviews: list[Json] = []
        self.permissions: dict[str, str] = {}
        """By login; others can only read."""
        self.reactions: list[tuple[int, str]] = []
        """Comment and reaction."""
        self.run_again: list[int] = []
        """Ids of runs."""
        self.requests: list[str] = []
        """Operations."""
        self.failing: list[Failing] = []
        self._ids = itertools.count(1_001)
        self._lock = threading.Lock()

    # --- for tests

    def repository(self) -> GitHubRepository:
        return GitHubRepository(self.url, REPOSITORY, TOKEN)

    def fail(
        self,
        operation: str,
        status: int,
        message: str = "no",
        *,
        times: int = 1,
        headers: dict[str, str] | None = None,
    ) -> None:
        answer = Answer(status, json.dumps({"message": message}).encode(), headers or {})
        self.failing.append(Failing(operation, answer, times))

    def break_connection(self, operation: str, *, is_carried_out: bool) -> None:
        self.failing.append(Failing(operation, None, is_carried_out=is_carried_out))

    def add_comment(self, body: str, number: int = 7, **fields: Any) -> int:
        comment_id = next(self._ids)
        self.comments[comment_id] = {
            "id": comment_id,
            "body": body,
            "user": BOT,
            "author_association": "NONE",
            "number": number,
            "created_at": "2026-01-02T03:04:05Z",
        } | fields
        return comment_id

    @property
    def bodies(self) -> list[str]:
        return [str(comment["body"]) for comment in self.comments.values()]

    # --- for the server

    def answer(self, request: Request) -> Answer | None:
        if request.headers.get("Authorization") not in {f"Bearer {TOKEN}", f"token {TOKEN}"}:
            return Answer(401, b'{"message": "Bad credentials"}')
        for method, path, carry_out in _OPERATIONS:
            found = path.fullmatch(request.path)
            if found is None or method != request.method:
                continue
            name = carry_out.__name__
            self.requests.append(name)
            values = [int(value) if value.isdecimal() else value for value in found.groups()]
            given = (self, *values, json.loads(request.body) if request.body else request.query)
            failing = next(
                (one for one in self.failing if one.operation == name and one.times), None
            )
            if failing is not None:
                failing.times -= 1
                if failing.is_carried_out:
                    carry_out(*given)
                return failing.answer
            with self._lock:
                try:
                    return self._to_answer(carry_out(*given), request)
                except KeyError:
                    break
        return Answer(404, b'{"message": "Not Found"}')

    def _to_answer(self, found: Any, request: Request) -> Answer:
        """Write a page of a list, or a document."""
        if found is None:
            return Answer(204)
        headers = {}
        if isinstance(found, list):
            length = min(int(request.query.get("per_page", 30)), self.page_length)
            number = int(request.query.get("page", 1))
            if number * length < len(found):
                headers["Link"] = f'<{self.url}/next?page={number + 1}>; rel="next"'
            found = found[(number - 1) * length : number * length]
        return Answer(200, json.dumps(found).encode(), headers)

    @operation("GET", r"issues/(\d+)/comments")
    def list_comments(self, number: int, _: Json) -> list[Json]:
        return [comment for comment in self.comments.values() if comment["number"] == number]

    @operation("POST", r"issues/(\d+)/comments")
    def create_comment(self, number: int, body: Json) -> Json:
        assert len(body["body"]) <= 65_536
        return self.comments[self.add_comment(body["body"], number)]

    @operation("PATCH", r"issues/comments/(\d+)")
    def update_comment(self, comment_id: int, body: Json) -> Json:
        self.comments[comment_id].update(body)
        return self.comments[comment_id]

    @operation("DELETE", r"issues/comments/(\d+)")
    def delete_comment(self, comment_id: int, _: Json) -> None:
        del self.comments[comment_id]

    @operation("POST", r"issues/comments/(\d+)/reactions")
    def create_reaction(self, comment_id: int, body: Json) -> Json:
        self.reactions.append((self.comments[comment_id]["id"], body["content"]))
        return {"id": 1}

    @operation("GET", r"issues")
    def list_issues(self, query: Json) -> list[Json]:
        return [
            issue
            for issue in reversed(self.issues.values())
            if {"name": query["labels"]} in issue["labels"]
        ]

    @operation("POST", r"issues")
    def create_issue(self, body: Json) -> Json:
        number, labels = next(self._ids), [{"name": name} for name in body["labels"]]
        issue = {"number": number, "state": "open", "user": BOT, "author_association": "NONE"}
        self.issues[number] = issue | body | {"labels": labels}
        return self.issues[number]

    @operation("PATCH", r"issues/(\d+)")
    def update_issue(self, number: int, body: Json) -> Json:
        self.issues[number].update(body)
        return self.issues[number]

    @operation("GET", r"collaborators/([^/]+)/permission")
    def get_permission(self, login: str, _: Json) -> Json:
        return {"permission": self.permissions.get(login, "read")}

    @operation("POST", r"actions/runs/(\d+)/rerun")
    def rerun_workflow(self, run_id: int, _: Json) -> Json:
        self.run_again.append(run_id)
        return {}

    @operation("GET", r"pulls/(\d+)")
    def get_pull_request(self, number: int, _: Json) -> Json:
        return {one["number"]: one for one in self.pull_requests}[number]

    @operation("GET", r"pulls/(\d+)/reviews")
    def list_reviews(self, number: int, _: Json) -> list[Json]:
        return [review for review in self.reviews if review["number"] == number]

    @operation("GET", r"pulls")
    def list_pull_requests(self, query: Json) -> list[Json]:
        return [one for one in self.pull_requests if one["head"]["label"] == query["head"]]

    @operation("GET", r"commits/([^/]+)/check-runs")
    def list_check_runs(self, sha: str, query: Json) -> Json:
        wanted = sha, query["check_name"]
        return {
            "check_runs": [
                one for one in self.check_runs.values() if (one["head_sha"], one["name"]) == wanted
            ]
        }

    @operation("POST", r"check-runs")
    def create_check_run(self, body: Json) -> Json:
        check_run_id = next(self._ids)
        self.check_runs[check_run_id] = {
            "id": check_run_id,
            "status": "queued",
            "conclusion": None,
            "annotations": [],
            "started_at": "2026-01-02T03:04:05Z",
        }
        changed: Json = self.update_check_run(check_run_id, body)
        return changed

    @operation("PATCH", r"check-runs/(\d+)")
    def update_check_run(self, check_run_id: int, body: Json) -> Json:
        """As GitHub does it: fields are replaced, and annotations are added."""
        check_run = self.check_runs[check_run_id]
        check_run["annotations"] += body.get("output", {}).pop("annotations", [])
        check_run.update(body)
        return check_run


@contextmanager
def open_github() -> Iterator[GitHubStandIn]:
    stand_in = GitHubStandIn()
    with serve(stand_in.answer) as stand_in.url:
        yield stand_in
