"""What the GitHub action does in a job: the commands for an event, and the reply to a requested
measurement.
"""

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

from roofwatch.ci.forges.commands import describe, reply
from roofwatch.ci.forges.event import (
    TOKEN_VARIABLE,
    Job,
    RequestedMeasurement,
    job_of,
    requested_measurement,
)
from roofwatch.ci.messages import ForgeError, code
from roofwatch.collector.git import merge_base
from roofwatch.collector.outbox.http_client import TOKEN_VARIABLE as SERVICE_TOKEN_VARIABLE
from roofwatch.model.claim import DEFAULT_POLICY, AcceptBy, CheckPolicy
from roofwatch.pull_requests import job_services, posting

RECORDS = Path("roofwatch-records")
BISECTION = "bisection.json"
_MAX_BISECTION_BYTES = 1_000_000
_MAX_LINES = 6
_ON_REQUEST = "requested"
"""Name of the part that a comment asked for on the usual runner."""
Mode = Literal["all", "measure", "report"]


def run_action(
    mode: Mode,
    suite: str,
    base: str,
    arguments: str,
    name: str,
    variables: Mapping[str, str],
    *,
    policy: Sequence[str] = (),
    part: str = "",
    runner_class: str = "",
) -> int:
    """Run the commands of a job; return the status of the last. The report says how a measurement
    ended.

    The base `auto` is the merge-base with the target branch. More arguments of `roofwatch ab` are
    split like a shell does. With a runner class, the service's queue gets the measurement: this job
    runs no code of the pull request, and may have the token of the service.

    Raises:
        ForgeError: there is nothing to do for this event, or it may not be queued.
        GitError: the base is unknown and cannot be fetched.
    """
    RECORDS.mkdir(exist_ok=True)
    event = job_services.event_of(variables)
    more = shlex.split(arguments)
    commands = commands_for(
        mode=mode,
        suite=suite,
        base=base,
        arguments=more,
        name=name,
        variables=variables,
        event=event,
        policy=policy,
        part=part,
        runner_class=runner_class,
    )
    for command in commands:
        print(f"$ roofwatch {shlex.join(command)}", flush=True)
        measures = command[0] in {"ab", "bisect"}
        environment = dict(variables)
        if measures:
            # it runs code of the pull request
            environment.pop(TOKEN_VARIABLE, None)
            if not runner_class:
                environment.pop(SERVICE_TOKEN_VARIABLE, None)
        with ExitStack() as stack:
            output = None
            if command[0] == "bisect":
                output = stack.enter_context((RECORDS / BISECTION).open("wb"))
            # a folder `roofwatch` of the repository is not this package
            line = [sys.executable, "-P", "-m", "roofwatch", *command]
            done = subprocess.run(line, check=False, env=environment, stdout=output)
        # the report says how a measurement ended
        if not measures and done.returncode:
            return done.returncode
    return 0


def commands_for(
    mode: Mode,
    suite: str,
    base: str,
    arguments: Sequence[str],
    name: str,
    variables: Mapping[str, str],
    event: Mapping[str, Any],
    *,
    policy: Sequence[str] = (),
    part: str = "",
    runner_class: str = "",
) -> Iterator[list[str]]:
    """Return the commands of a job, each as its arguments, from the parameters of `run_action`.

    `policy` are options for what posts a check.
    """
    request = requested_measurement(variables)
    if runner_class:
        _check_queueable(request, variables, event)
    named = ["--name", name]
    post = ["post", str(RECORDS), *named, *policy]
    if part:
        post.append(f"--part={part}")
    if mode == "report":
        if variables.get("GITHUB_EVENT_NAME") != "workflow_run":
            records = [] if request is None else [str(RECORDS)]
            yield ["command", *records, *named, *policy]
        elif event.get("action") == "requested":
            yield ["post", "--begin", *named]
        else:
            yield post
        return
    if mode == "all":
        yield ["post", "--begin", *named]
    head = job_of(variables, event).head_sha
    if request is not None and base == "auto":  # the event is about a comment
        base = merge_base(Path.cwd(), request.base, head)
    if request is not None and request.verb == "bisect":
        yield ["bisect", suite, "--series", request.series, "--good", base, "--bad", head, "--json"]
        return
    queued = ["--on", runner_class] if runner_class else []
    compared = ["--base", base, "--head", head, "--output", str(RECORDS)]
    yield ["ab", suite, *compared, *queued, *arguments]
    if mode == "all":
        yield post
    else:
        yield [*post, "--no-comment", "--no-check"]


def _check_queueable(
    request: RequestedMeasurement | None,
    variables: Mapping[str, str],
    event: Mapping[str, Any],
) -> None:
    """Raise ForgeError unless the queue may get the code of this event, and the job names it."""
    # a file of the pull request could name another server, which would get the token
    if not variables.get(job_services.SERVER_VARIABLE):
        raise ForgeError("a queue needs the service: give the action `server-url`")
    if request is not None:
        if not request.is_queueable:
            raise ForgeError(
                f"{request.verb} {request.runner}: not for the queue; measure it in a job of GitHub"
            )
        # somebody with write access asked for this commit
        return
    if "pull_request" not in event:
        return
    repository = (event["pull_request"]["head"].get("repo") or {}).get("full_name")
    if repository != variables.get("GITHUB_REPOSITORY"):
        raise ForgeError(
            f"code of {repository or 'a deleted fork'} is not queued by itself; somebody with "
            "write access reviews it and comments `/roofwatch run`"
        )


def report_result(
    request: RequestedMeasurement,
    job: Job,
    folder: Path,
    name: str,
    variables: Mapping[str, str],
    *,
    policy: CheckPolicy = DEFAULT_POLICY,
    expected: Sequence[str] = (),
    accept_by: AcceptBy = AcceptBy.REVIEWER,
) -> str:
    """Report a requested run like any other, or read the result of a bisection, and reply with it.

    Returns the reply as Markdown. The files of the folder are untrusted.
    """
    repository = job_services.open_repository(job.run, variables)
    missing: tuple[str, ...] = ()
    if request.verb == "bisect":
        result = _bisection_result(folder)
    else:
        report = posting.report_on([folder], job, policy=policy)
        is_newest = repository.branch_and_head(request.number)[1] == request.head
        posted = posting.post(
            repository,
            job,
            # the result of a hosted runner for this commit stays in the report
            {request.runner or _ON_REQUEST: report},
            name,
            with_comment=is_newest,
            with_check=True,
            expected=expected,
            accept_by=accept_by,
            tell_service=job_services.open_service(variables),
        )
        missing = posted.missing
        result = code(report.check.title)
    text = f"{describe(request, job.run)}: {result}"
    reply(
        repository=repository,
        number=request.number,
        key=f"result {request.reply}",
        run=job.run,
        text=text,
    )
    if missing:
        raise ForgeError(f"missing: {'; '.join(missing)}")
    return text


def _bisection_result(folder: Path) -> str:
    try:
        (file,) = folder.rglob(BISECTION)
        with file.open("rb") as opened:
            lines = json.loads(opened.read(_MAX_BISECTION_BYTES))["summary"]
        return "  \n".join(code(str(line), limit=300) for line in list(lines)[:_MAX_LINES])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "the search for the commit failed; the log of the run has the reason."
