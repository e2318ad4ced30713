"""Results on a pull request: two records from a folder that anybody may have filled, to a comment and a check-run.

The commit and the pull request come from the event that started the job, never from the records; records of another
commit are refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofwatch.ci.ab.noise_floor import NoiseFloor, NoiseFloorError
from roofwatch.ci.errors import GitHubError
from roofwatch.ci.github import check_run
from roofwatch.ci.github.acceptance import accepted_check, findings_of, found_line, with_acceptance
from roofwatch.ci.github.event import TOKEN_VARIABLE, ActionsRun, Job, job_of
from roofwatch.ci.report.comment import COMMENT_MARKER, is_silent, to_markdown
from roofwatch.ci.report.pull_request import PullRequestJudgement, judge_pull_request
from roofwatch.ci.static.baseline import Baseline, BaselineError
from roofwatch.collector.errors import RecordError
from roofwatch.collector.record.record import RunRecord, Side
from roofwatch.static_gate import BASELINE_NAME, read_baseline
from roofwatch.terminal import OutputError

if TYPE_CHECKING:  # a dry run needs no client
    from roofwatch.ci.github.client import GitHubRepository
    from roofwatch.ci.github.posting import CommentAction

SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
_SUMMARY_BYTES = 1_000_000
"""GitHub takes 1 MiB from a step."""
_PREFIXES = ("base-", "head-")
_SUFFIXES = (".json", ".json.gz")


class NotMeasuredError(Exception):
    """There is nothing to judge."""


@dataclass(frozen=True)
class Report:
    """What to post on a pull request."""

    check: check_run.CheckRun
    judgement: PullRequestJudgement | None = None
    comment: str | None = None
    """Markdown, below its marker; None if nothing could be judged."""
    summary: str | None = None
    """The same for the job's page, cut later."""
    problem: str | None = None
    """Why nothing could be judged."""
    is_refused: bool = False
    """The records are not what they should be."""


@dataclass(frozen=True)
class Posted:
    """What became of a report."""

    pull_request: int | None = None
    comment: CommentAction | None = None
    """None if none was asked for, or there is nowhere to post it."""
    check_run: str | None = None
    """Its conclusion, or `in_progress`."""
    accepted_by: str | None = None
    """Who accepted the regressions, if that still holds."""


def this_job(variables: Mapping[str, str]) -> Job:
    """The job of GitHub Actions that this process runs in.

    Raises:
        GitHubError: it runs in none, or the event cannot be read.
    """
    return job_of(variables, event_of(variables))


def event_of(variables: Mapping[str, str]) -> dict[str, Any]:
    """The event that started the job.

    Raises:
        GitHubError: it cannot be read.
    """
    path = variables.get("GITHUB_EVENT_PATH", "")
    try:
        event = json.loads(Path(path).read_text()) if path else {}
    except (OSError, ValueError) as error:
        raise GitHubError(f"GITHUB_EVENT_PATH: {path}: {error}") from None
    return event if isinstance(event, dict) else {}


def open_repository(run: ActionsRun, variables: Mapping[str, str]) -> GitHubRepository:
    """The repository of a run, with the job's token.

    Raises:
        GitHubError: there is no token.
    """
    from roofwatch.ci.github.client import GitHubRepository

    token = variables.get(TOKEN_VARIABLE, "").strip()
    if not token:
        raise GitHubError(
            f"{TOKEN_VARIABLE} is not set; give the step `env: {TOKEN_VARIABLE}: ${{{{ github.token }}}}`"
        )
    return GitHubRepository(run.api_url, run.repository, token)


def report_on(
    paths: Sequence[Path], baseline: Path | None, job: Job | None, noise_floor: NoiseFloor | None = None
) -> Report:
    """Judge two records, or a folder with them and with the baseline file if there is one.

    What is wrong with the files is reported in place of a verdict: no check-run stays in progress because of it.

    Args:
        paths: The two records, base and head, or one folder.
        baseline: File of accepted compiled facts; the folder's or the current one's if left out.
        job: What they must belong to; None to take them as they are.
        noise_floor: Of the runner that measured them, if it is known.
    """
    try:
        base, head = _pair(paths)
        if job is not None and head.commit.sha != job.head_sha:
            raise RecordError(f"the record is of commit {head.commit.sha}, the event is about {job.head_sha}")
        judgement = judge_pull_request(base, head, baseline=_baseline(paths, baseline), noise_floor=noise_floor)
    except NotMeasuredError as error:
        ended = f"; the run that measured ended as {job.conclusion}" if job is not None and job.conclusion else ""
        return Report(check_run.not_measured(f"{error}{ended}"), problem=f"{error}{ended}")
    except (RecordError, BaselineError, NoiseFloorError) as error:
        return Report(check_run.not_measured(str(error)), problem=str(error), is_refused=True)
    url = None if job is None else job.run.url
    check_text = _without_marker(to_markdown(judgement, max_bytes=check_run.MAX_SUMMARY_BYTES - 1_000, whole_url=url))
    return Report(
        check_run.concluded(judgement, check_text),
        judgement,
        comment=to_markdown(judgement, whole_url=url),
        summary=_without_marker(to_markdown(judgement, max_bytes=_SUMMARY_BYTES)),
    )


def post(
    repository: GitHubRepository, job: Job, report: Report, name: str, *, with_comment: bool, with_check: bool
) -> Posted:
    """Post a report to where its job says, with what somebody accepted of it before.

    Raises:
        GitHubError: GitHub refuses, or cannot be reached.
    """
    from roofwatch.ci.github.commands import standing_acceptance
    from roofwatch.ci.github.posting import body_of, post_check_run, post_comment, pull_request_of

    findings = None if report.judgement is None else findings_of(report.judgement, job.head_sha)
    number, acceptance, done = job.pull_request, None, None
    if number is None and job.head_branch is not None and (with_comment or findings is not None):
        number = pull_request_of(repository, job.head_branch, job.head_sha)
    if findings is not None and number is not None:
        acceptance = standing_acceptance(repository, number, name, findings)
    check = report.check if acceptance is None else accepted_check(report.check, acceptance)
    if with_check:
        post_check_run(repository, job.head_sha, name, job.run.order, check, job.run.url)
    if with_comment and number is not None and report.judgement is not None and report.comment is not None:
        body = body_of(report.comment, name, job.run.order, *([] if findings is None else [found_line(findings)]))
        body = body if acceptance is None else with_acceptance(body, acceptance)
        done = post_comment(repository, number, body, is_silent=is_silent(report.judgement))
    state = check.conclusion.value if check.conclusion is not None else "in_progress"
    return Posted(
        pull_request=None if done is None else number,
        comment=done,
        check_run=state if with_check else None,
        accepted_by=None if acceptance is None else acceptance.login,
    )


def append_summary(report: Report, variables: Mapping[str, str]) -> None:
    """Show the report on the job's page, if there is such a page.

    Raises:
        OutputError: it cannot be written.
    """
    path = variables.get(SUMMARY_VARIABLE)
    text = report.summary or (report.check.summary if report.problem else None)
    if not path or text is None:
        return
    try:
        with Path(path).open("a") as file:
            file.write(f"{text}\n")
    except OSError as error:
        raise OutputError(f"{SUMMARY_VARIABLE}: {path}: cannot be written: {error.strerror}") from None


def summary(posted: Posted, report: Report) -> Iterator[str]:
    """What was done, line by line."""
    if report.problem is not None:
        yield f"nothing to judge: {report.problem}"
    if posted.check_run is not None:
        yield f"check-run: {posted.check_run} ({report.check.title})"
    if posted.accepted_by is not None:
        yield f"accepted by {posted.accepted_by}"
    if posted.comment is not None:
        yield f"comment on pull request {posted.pull_request}: {posted.comment}"


def to_json(posted: Posted, report: Report) -> dict[str, Any]:
    """The document that `--json` prints."""
    verdict = None if report.judgement is None else report.judgement.verdict
    return {"verdict": verdict, "problem": report.problem, "title": report.check.title, **asdict(posted)}


def _without_marker(comment: str) -> str:
    return comment.removeprefix(COMMENT_MARKER).lstrip("\n")


def _pair(paths: Sequence[Path]) -> tuple[RunRecord, RunRecord]:
    if len(paths) == 2 and not any(path.is_dir() for path in paths):
        return RunRecord.read(paths[0]), RunRecord.read(paths[1])
    if len(paths) != 1 or (paths[0].exists() and not paths[0].is_dir()):
        raise RecordError("give two records, base and head, or one folder that holds them")
    files = sorted(_files_in(paths[0]))
    if not files:
        raise NotMeasuredError(f"no record in {paths[0]}")
    if len(files) != 2:
        raise RecordError(f"{paths[0]}: {len(files)} records; there must be two, of base and head")
    by_side = {record.pairing.side: record for record in map(RunRecord.read, files) if record.pairing is not None}
    if set(by_side) != {Side.BASE, Side.HEAD}:
        raise RecordError(f"{paths[0]}: the two records are no pair of base and head; roofwatch ab makes one")
    return by_side[Side.BASE], by_side[Side.HEAD]


def _files_in(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):  # follows no link out of the folder
        for name in names:
            file = Path(parent, name)
            if name.startswith(_PREFIXES) and name.endswith(_SUFFIXES) and file.is_file() and not file.is_symlink():
                yield file


def _baseline(paths: Sequence[Path], file: Path | None) -> Baseline:
    carried = [path / BASELINE_NAME for path in paths if (path / BASELINE_NAME).is_file()]
    return read_baseline(file, next(iter(carried), Path(BASELINE_NAME)))
