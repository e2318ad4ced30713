"""What the GitHub action does in a job: the commands for an event, and the reply to a requested measurement."""

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from roofwatch import posting
from roofwatch.ci.github.commands import describe, reply
from roofwatch.ci.github.event import TOKEN_VARIABLE, Job, RequestedMeasurement, job_of, requested_measurement
from roofwatch.ci.report.markdown import code
from roofwatch.collector.git import merge_base

RECORDS = Path("roofwatch-records")
BISECTION = "bisection.json"
_MAX_BISECTION_BYTES = 1_000_000
_MAX_LINES = 6


@dataclass(frozen=True)
class Inputs:
    """Inputs of the action."""

    mode: Literal["all", "measure", "report"]
    suite: str
    base: str
    """Revision; `auto` for the merge-base with the target branch."""
    arguments: str
    """Further arguments of `roofwatch ab`, split like a shell does."""
    name: str
    """Of the report."""


def run_action(inputs: Inputs, variables: Mapping[str, str]) -> int:
    """Run the commands for the event of a job, and return the exit status of the last one.

    A measurement may fail: the report says how it ended.

    Raises:
        GitHubError: there is nothing to do for this event.
        GitError: the base is unknown and cannot be fetched.
    """
    RECORDS.mkdir(exist_ok=True)
    status = 0
    for command in commands_for(inputs, variables, posting.event_of(variables)):
        print(f"$ roofwatch {shlex.join(command)}", flush=True)
        measures = command[0] in {"ab", "bisect"}
        given = {key: value for key, value in variables.items() if key != TOKEN_VARIABLE or not measures}
        opened = (RECORDS / BISECTION).open("wb") if command[0] == "bisect" else nullcontext()
        with opened as output:
            line = [sys.executable, "-m", "roofwatch", *command]
            done = subprocess.run(line, check=False, env=given, stdout=output)
        status = 0 if measures else done.returncode
        if status:
            break
    return status


def commands_for(inputs: Inputs, variables: Mapping[str, str], event: Mapping[str, Any]) -> Iterator[list[str]]:
    """Return the commands of a job, each as its arguments.

    Raises:
        GitHubError: there is nothing to do for this event.
        GitError: the base is unknown and cannot be fetched.
    """
    request, named = requested_measurement(variables), ["--name", inputs.name]
    post = ["post", str(RECORDS), *named]
    if inputs.mode == "report":
        if variables.get("GITHUB_EVENT_NAME") == "workflow_run":
            yield ["post", "--begin", *named] if event.get("action") == "requested" else post
        else:
            yield ["command", *([] if request is None else [str(RECORDS)]), *named]
        return
    if inputs.mode == "all":
        yield ["post", "--begin", *named]
    head = job_of(variables, event).head_sha
    base = inputs.base
    if request is not None and base == "auto":  # the event is about a comment
        base = merge_base(Path.cwd(), request.base, head)
    if request is not None and request.verb == "bisect":
        yield ["bisect", inputs.suite, "--series", request.series, "--good", base, "--bad", head, "--json"]
        return
    ends = ["--base", base, "--head", head, "--output", str(RECORDS)]
    yield ["ab", inputs.suite, *ends, *shlex.split(inputs.arguments)]
    yield post if inputs.mode == "all" else [*post, "--no-comment", "--no-check"]


class _Bisection(BaseModel):
    """What is read of the result of `roofwatch bisect --json`."""

    summary: tuple[str, ...]


def hand_over(requests: Sequence[RequestedMeasurement], variables: Mapping[str, str]) -> None:
    """Write requests as an output of the step, for the jobs that measure."""
    path = variables.get("GITHUB_OUTPUT")
    if path and requests:
        with Path(path).open("a") as file:
            file.write(f"requests={json.dumps([request.model_dump() for request in requests])}\n")


def report_result(
    request: RequestedMeasurement, job: Job, folder: Path, name: str, variables: Mapping[str, str]
) -> str:
    """Report a requested run like any other, or read the result of a bisection, and reply with it.

    Args:
        request: What was asked for.
        job: This job.
        folder: Untrusted files of the job that measured.
        name: Of the report.
        variables: The environment.

    Returns:
        The reply, as Markdown.

    Raises:
        GitHubError: GitHub refuses.
    """
    repository = posting.open_repository(job.run, variables)
    if request.verb == "bisect":
        result = _bisection_result(folder)
    else:
        report = posting.report_on([folder], None, job)
        is_newest = repository.branch_and_head(request.number)[1] == request.head
        posting.post(repository, job, report, name, with_comment=is_newest, with_check=True)
        result = code(report.check.title)
    text = f"{describe(request, job.run)}: {result}"
    reply(repository, request.number, f"result {request.reply}", job.run, text)
    return text


def _bisection_result(folder: Path) -> str:
    try:
        (file,) = folder.rglob(BISECTION)
        if file.is_symlink() or file.stat().st_size > _MAX_BISECTION_BYTES:
            raise OSError
        lines = _Bisection.model_validate_json(file.read_bytes()).summary
    except (OSError, ValueError):
        return "the search for the commit failed; the log of the run has the reason."
    return "  \n".join(code(line, limit=300) for line in lines[:_MAX_LINES])
