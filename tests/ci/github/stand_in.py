"""A fake GitHub server: comments, check-runs, issues and pull requests, with pagination and errors."""

from __future__ import annotations

import base64
import json
import re
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from roofwatch.ci.github.client import GitHubRepository

TOKEN = "a-secret-token"
REPOSITORY = "example/project"
BOT = {"login": "github-actions[bot]", "type": "Bot"}
ROUTES = {
    "issues/list-comments": ("GET", r"issues/(?P<number>\d+)/comments"),
    "issues/create-comment": ("POST", r"issues/(?P<number>\d+)/comments"),
    "issues/get-comment": ("GET", r"issues/comments/(?P<id>\d+)"),
    "issues/update-comment": ("PATCH", r"issues/comments/(?P<id>\d+)"),
    "issues/delete-comment": ("DELETE", r"issues/comments/(?P<id>\d+)"),
    "issues/list-for-repo": ("GET", r"issues"),
    "issues/create": ("POST", r"issues"),
    "issues/update": ("PATCH", r"issues/(?P<number>\d+)"),
    "reactions/create-for-issue-comment": ("POST", r"issues/comments/(?P<id>\d+)/reactions"),
    "repos/get-collaborator-permission-level": ("GET", r"collaborators/(?P<login>[^/]+)/permission"),
    "repos/get-content": ("GET", r"contents/(?P<path>.+)"),
    "actions/re-run-workflow": ("POST", r"actions/runs/(?P<id>\d+)/rerun"),
    "actions/create-workflow-dispatch": ("POST", r"actions/workflows/(?P<workflow>[^/]+)/dispatches"),
    "pulls/get": ("GET", r"pulls/(?P<number>\d+)"),
    "pulls/list": ("GET", r"pulls"),
    "checks/list-for-ref": ("GET", r"commits/(?P<ref>[^/]+)/check-runs"),
    "checks/create": ("POST", r"check-runs"),
    "checks/update": ("PATCH", r"check-runs/(?P<id>\d+)"),
}


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


NOT_FOUND = Answer(404, {"message": "Not Found"})


@dataclass
class Failing:
    """How the next requests of a kind fail."""

    operation: str
    answer: Answer | None
    """None: the connection is closed without an answer."""
    times: int = 1
    is_carried_out: bool = False
    """Whether the request is carried out anyway."""


@dataclass
class Request:
    operation: str
    """GitHub's name for it, for example `issues/create-comment`."""
    values: dict[str, str]
    """Of its path."""
    query: dict[str, str]
    body: Any
    headers: dict[str, str]

    @property
    def number(self) -> int:
        return int(self.values.get("number") or self.values["id"])


class GitHubStandIn:
    """The state. `url` is what `GITHUB_API_URL` should be."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.url = ""
        self.page_length = 100
        self.comments: dict[int, dict[str, Any]] = {}
        self.check_runs: dict[int, dict[str, Any]] = {}
        self.issues: dict[int, dict[str, Any]] = {}
        self.files: dict[str, str] = {}
        """Of the default branch, by path."""
        self.pull_requests: list[dict[str, Any]] = []
        self.permissions: dict[str, str] = {}
        """By login; others can only read."""
        self.reactions: list[tuple[int, str]] = []
        """Comment and reaction."""
        self.run_again: list[int] = []
        """Ids of runs."""
        self.started: list[dict[str, Any]] = []
        """Workflows that were started by hand, with their inputs."""
        self.requests: list[Request] = []
        self.failing: list[Failing] = []
        self._next_id = 1_000
        self._lock = threading.Lock()

    # --- for tests

    def repository(self, token: str = TOKEN) -> GitHubRepository:
        return GitHubRepository(self.url, REPOSITORY, token)

    def fail(
        self,
        operation: str,
        status: int,
        message: str = "no",
        *,
        times: int = 1,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.failing.append(Failing(operation, Answer(status, {"message": message}, headers or {}), times))

    def break_connection(self, operation: str, *, is_carried_out: bool) -> None:
        self.failing.append(Failing(operation, None, is_carried_out=is_carried_out))

    def add_comment(self, body: str, number: int = 7, **fields: Any) -> int:
        comment_id = self._take_id()
        self.comments[comment_id] = {
            "id": comment_id,
            "body": body,
            "user": BOT,
            "author_association": "NONE",
            "number": number,
            "issue_url": f"{self.url}/repos/{REPOSITORY}/issues/{number}",
            "created_at": "2026-01-02T03:04:05Z",
        } | fields
        return comment_id

    def request_count(self, operation: str) -> int:
        return sum(request.operation == operation for request in self.requests)

    @property
    def bodies(self) -> list[str]:
        return [str(comment["body"]) for comment in self.comments.values()]

    # --- for the server

    def answer(self, request: Request) -> Answer | None:
        self.requests.append(request)
        if request.headers.get("Authorization") not in {f"Bearer {TOKEN}", f"token {TOKEN}"}:
            return Answer(401, {"message": "Bad credentials"})
        failing = next((each for each in self.failing if each.operation == request.operation and each.times), None)
        if failing is None:
            return self._carry_out(request)
        failing.times -= 1
        if failing.is_carried_out:
            self._carry_out(request)
        return failing.answer

    def _carry_out(self, request: Request) -> Answer:
        with self._lock:
            carried_out: Answer = getattr(self, "_" + re.sub(r"\W", "_", request.operation))(request)
        return carried_out

    def _issues_list_comments(self, request: Request) -> Answer:
        return self._page([each for each in self.comments.values() if each["number"] == request.number], request)

    def _issues_create_comment(self, request: Request) -> Answer:
        if len(request.body["body"]) > 65_536:
            return Answer(422, {"message": "Validation Failed", "errors": ["body is too long"]})
        return Answer(201, self.comments[self.add_comment(request.body["body"], request.number)])

    def _issues_get_comment(self, request: Request) -> Answer:
        comment = self.comments.get(request.number)
        return NOT_FOUND if comment is None else Answer(200, comment)

    def _issues_update_comment(self, request: Request) -> Answer:
        self.comments.get(request.number, {}).update(request.body)
        return self._issues_get_comment(request)

    def _issues_delete_comment(self, request: Request) -> Answer:
        return NOT_FOUND if self.comments.pop(request.number, None) is None else Answer(204)

    def _reactions_create_for_issue_comment(self, request: Request) -> Answer:
        reaction = request.number, request.body["content"]
        if reaction[0] not in self.comments:
            return NOT_FOUND
        if reaction not in self.reactions:
            self.reactions.append(reaction)
        return Answer(201, {"id": 1})

    def _repos_get_collaborator_permission_level(self, request: Request) -> Answer:
        permission = self.permissions.get(request.values["login"], "read")
        return Answer(200, {"permission": permission, "role_name": permission, "user": None})

    def _actions_re_run_workflow(self, request: Request) -> Answer:
        self.run_again.append(request.number)
        return Answer(201, {})

    def _actions_create_workflow_dispatch(self, request: Request) -> Answer:
        self.started.append({"workflow": request.values["workflow"], **request.body})
        return Answer(204)

    def _pulls_get(self, request: Request) -> Answer:
        found = next((each for each in self.pull_requests if each["number"] == request.number), None)
        return NOT_FOUND if found is None else Answer(200, found)

    def _pulls_list(self, request: Request) -> Answer:
        wanted = request.query["head"]
        return self._page([each for each in self.pull_requests if each["head"]["label"] == wanted], request)

    def _issues_list_for_repo(self, request: Request) -> Answer:
        wanted = set(request.query.get("labels", "").split(",")) - {""}
        found = [each for each in self.issues.values() if wanted <= {label["name"] for label in each["labels"]}]
        return self._page(found[::-1], request)

    def _issues_create(self, request: Request) -> Answer:
        number, labels = self._take_id(), [{"name": name} for name in request.body.get("labels", ())]
        issue = {"number": number, "state": "open", "user": BOT, "author_association": "NONE"}
        self.issues[number] = issue | request.body | {"labels": labels}
        return Answer(201, self.issues[number])

    def _issues_update(self, request: Request) -> Answer:
        issue = self.issues.get(request.number)
        if issue is None:
            return NOT_FOUND
        issue.update(request.body)
        return Answer(200, issue)

    def _repos_get_content(self, request: Request) -> Answer:
        text = self.files.get(request.values["path"])
        if text is None:
            return NOT_FOUND
        return Answer(
            200, {"type": "file", "encoding": "base64", "content": base64.encodebytes(text.encode()).decode()}
        )

    def _checks_list_for_ref(self, request: Request) -> Answer:
        wanted = request.values["ref"], request.query["check_name"]
        found = [each for each in self.check_runs.values() if (each["head_sha"], each["name"]) == wanted]
        answer = self._page(found, request)
        return Answer(200, {"total_count": len(found), "check_runs": answer.body}, answer.headers)

    def _checks_create(self, request: Request) -> Answer:
        check_run_id = self._take_id()
        self.check_runs[check_run_id] = {"id": check_run_id, "status": "queued", "conclusion": None, "annotations": []}
        return Answer(201, self._change_check_run(check_run_id, request.body))

    def _checks_update(self, request: Request) -> Answer:
        return Answer(200, self._change_check_run(request.number, request.body))

    def _change_check_run(self, check_run_id: int, body: dict[str, Any]) -> dict[str, Any]:
        """As GitHub does it: fields are replaced, and annotations are added."""
        check_run = self.check_runs[check_run_id]
        check_run["annotations"] += body.get("output", {}).pop("annotations", [])
        check_run.update(body)
        return check_run

    def _page(self, items: list[dict[str, Any]], request: Request) -> Answer:
        length = min(int(request.query.get("per_page", 30)), self.page_length)
        number = int(request.query.get("page", 1))
        shown = items[(number - 1) * length : number * length]
        link = f'<{self.url}/next?page={number + 1}>; rel="next"' if number * length < len(items) else ""
        return Answer(200, shown, {"Link": link} if link else {})

    def _take_id(self) -> int:
        self._next_id += 1
        return self._next_id


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def handle_request(self) -> None:
        stand_in = self.server.stand_in
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(parts.path).removeprefix(f"{stand_in.prefix}/repos/{REPOSITORY}/")
        answer: Answer | None = NOT_FOUND
        for operation, (method, form) in ROUTES.items():
            found = re.fullmatch(form, path)
            if method == self.command and found is not None:
                query, body = dict(urllib.parse.parse_qsl(parts.query)), json.loads(sent) if sent else None
                answer = stand_in.answer(Request(operation, found.groupdict(), query, body, dict(self.headers.items())))
        if answer is None:
            self.close_connection = True
        else:
            self.send(answer)

    do_GET = do_POST = do_PATCH = do_DELETE = handle_request  # noqa: N815  the names of http.server

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def send(self, answer: Answer) -> None:
        body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        if answer.body is None:
            body = b""
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    stand_in: GitHubStandIn


@contextmanager
def open_github(prefix: str = "") -> Iterator[GitHubStandIn]:
    """Serve a fake GitHub; GitHub Enterprise has a prefix such as `/api/v3`."""
    stand_in = GitHubStandIn(prefix)
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.stand_in = stand_in
        stand_in.url = f"http://127.0.0.1:{server.server_address[1]}{prefix}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield stand_in
        finally:
            server.shutdown()
            thread.join()
