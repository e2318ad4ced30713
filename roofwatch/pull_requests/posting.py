"""Report on a pull request: two records from an untrusted folder to a comment and a check-run.

The commit and the pull request come from the event that started the job, never from the records;
records of another commit are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from roofwatch.ci.ab.noise_floor import NoiseFloor, NoiseFloorError
from roofwatch.ci.forges import check_run
from roofwatch.ci.forges.acceptance import findings_of
from roofwatch.ci.forges.accepted_findings import to_service, valid_acceptance
from roofwatch.ci.forges.check_run import BEGUN, CheckRun
from roofwatch.ci.forges.commands import TellService
from roofwatch.ci.forges.comment import (
    CommentAction,
    CommentState,
    Forge,
    PartState,
    accepted_by,
    compose,
    find_report,
    post_comment,
    report_marker,
    with_acceptance,
)
from roofwatch.ci.forges.event import Job
from roofwatch.ci.forges.parts import Part, earlier_parts, merge
from roofwatch.ci.messages import ForgeError, count_of
from roofwatch.ci.report.comment import Links, to_markdown
from roofwatch.ci.report.not_measured import NotMeasured
from roofwatch.ci.report.pull_request import PullRequestJudgement, judge_pull_request
from roofwatch.ci.report.titles import is_silent
from roofwatch.ci.static.baseline import BaselineError
from roofwatch.model.claim import DEFAULT_POLICY, AcceptBy, CheckPolicy
from roofwatch.model.errors import RecordError
from roofwatch.model.record import Commit
from roofwatch.pull_requests.job_services import open_forge
from roofwatch.reporting.records import WORKLOADS_NAME, read_step_shares
from roofwatch.reporting.report_files import (
    BASELINE_NAME,
    bundled_file,
    journalled_count,
    read_baseline,
    read_measured,
)

if TYPE_CHECKING:
    pass

PART_NAME = re.compile(r"[\w.-]{1,60}", re.ASCII)
_ARTIFACT = "roofwatch-records-"
"""What the names of artifacts with records begin with; the rest is the name of the part."""
_UNNAMED = "pull-request"
_BROKEN = frozenset({"failure", "timed_out", "startup_failure"})
"""How a run of GitHub Actions ends that measured nothing by mistake."""


@dataclass(frozen=True)
class Report:
    """What to post on a pull request."""

    check: check_run.CheckRun
    judgement: PullRequestJudgement | None = None
    """None if nothing could be judged."""
    comment: str | None = None
    """Markdown, if there is a judgement."""
    problem: str | None = None
    """Why nothing could be judged."""
    is_refused: bool = False
    """The records are not valid."""
    links: Links = field(default_factory=Links)
    is_silent: bool = False
    """The comment only replaces an earlier one."""


@dataclass(frozen=True)
class Posted:
    """What was posted."""

    comments: Mapping[str, CommentAction] = field(default_factory=dict)
    """By number of the pull request."""
    check_run: str | None = None
    """Its conclusion, or `in_progress`."""
    accepted_by: str | None = None
    """Login of who accepted the regressions."""
    missing: tuple[str, ...] = ()
    """What could not be posted, and why."""


def report_on(
    paths: Sequence[Path],
    job: Job | None,
    noise_floor: NoiseFloor | None = None,
    dashboard: str | None = None,
    documentation: str | None = None,
    workloads: Path | None = None,
    policy: CheckPolicy = DEFAULT_POLICY,
) -> Report:
    """Judge two records, or one folder with them; invalid files are reported in place of a verdict.

    So the check-run always concludes. The records must belong to the job, if there is one. The
    baseline is that of the folder or the current folder, as are the workloads if no file is given.
    """
    try:
        measured = read_measured(paths)
        if isinstance(measured, NotMeasured):
            note = measured
            _require_commit(note.head, job)
            check = check_run.without_records(note, policy=policy)
            text = None
            # A note that nothing changed needs no comment, unless one has to be replaced.
            if note.is_failure or not note.error:
                text = note.to_markdown()
            return Report(
                check=check,
                comment=text,
                problem=note.error or None,
                is_silent=not note.error,
            )
        if measured is None:
            return _nothing_measured(paths[0], job, policy)
        base = measured.base
        head = measured.head
        _require_commit(head.commit, job)
        steps = read_step_shares(workloads, bundled_file(paths, WORKLOADS_NAME), head)
        accepted = read_baseline(bundled_file(paths, BASELINE_NAME))
        judgement = judge_pull_request(
            base,
            head,
            baseline=accepted,
            noise_floor=noise_floor,
            steps=steps,
            policy=policy,
        )
    # What an untrusted job wrote may be anything.
    except (RecordError, BaselineError, NoiseFloorError) as error:
        check = check_run.not_measured(str(error), policy=policy)
        return Report(check, problem=str(error), is_refused=True)
    links = Links(
        run=None if job is None else job.run.url,
        dashboard=dashboard,
        source=None if job is None else job.source_url,
        documentation=documentation,
    )
    text = to_markdown(judgement, links=links)
    silent = is_silent(judgement)
    return Report(
        check=check_run.concluded(judgement, text),
        judgement=judgement,
        comment=text,
        links=links,
        is_silent=silent,
    )


def _nothing_measured(folder: Path, job: Job | None, policy: CheckPolicy) -> Report:
    ended = None if job is None else job.conclusion
    if ended == "skipped":
        reason = "the job that measures was skipped, because of a draft or a missing label"
        check = check_run.not_measured(reason, "skipped: not measured", policy=policy)
        return Report(check, problem=reason)
    reason = f"no record in {folder}"
    if ended:
        reason += f"; the run that measured ended as {ended}"
    result_count = journalled_count(folder)
    if result_count:
        reason += f"; its artifact has a journal with {count_of(result_count, 'result')}"
    check = check_run.not_measured(reason, policy=policy)
    # a broken set-up looks like a gate that passes; a cancelled run is followed by another
    if ended not in _BROKEN:
        return Report(check, problem=reason)
    text = f"### ⚪ No result: the measurement ended as {ended}\n\n{check.summary}\n\n"
    text += "**Next:** read the log of the run"
    if job is not None and job.run.url is not None:
        text += f" ([run]({job.run.url}))"
    return Report(check, comment=f"{text}.\n", problem=reason)


def reports_on(
    folder: Path,
    read: Callable[[Path], Report],
    expected: Sequence[str] = (),
) -> dict[str, Report]:
    """Report on every part below a folder, by name: an artifact per measurement, or its files."""
    parts = {path.name.removeprefix(_ARTIFACT): path for path in folder.glob(f"{_ARTIFACT}*")}
    named = {name: path for name, path in parts.items() if PART_NAME.fullmatch(name)}
    # what was asked for in a comment has the number of that comment
    is_unnamed = len(named) == 1 and not named.keys() & set(expected)
    if is_unnamed:
        return {"": read(next(iter(named.values())))}
    if not named:
        return {"": read(folder)}
    return {"" if name == _UNNAMED else name: read(named[name]) for name in sorted(named)}


def post(
    repository: Forge,
    job: Job,
    reports: Mapping[str, Report],
    name: str,
    *,
    with_comment: bool,
    with_check: bool,
    expected: Sequence[str] = (),
    accept_by: AcceptBy = AcceptBy.REVIEWER,
    tell_service: TellService | None = None,
) -> Posted:
    """Post the parts of a report to the pull requests and commit of its job, with an earlier
    acceptance if it still holds.

    What earlier jobs found in the same commit under other names stays. A check that cannot be
    posted does not keep the comments from being posted, nor the reverse.

    Raises:
        ForgeError: GitHub does not show the pull requests or their comments.
    """
    judgements = [report.judgement for report in reports.values() if report.judgement is not None]
    findings = findings_of(judgements, job.head_sha)
    order = job.run.order
    parts = [_part(part_name, report, job) for part_name, report in reports.items()]
    annotations = tuple(
        annotation for report in reports.values() for annotation in report.check.annotations
    )
    has_comment = any(report.comment is not None for report in reports.values())
    numbers: list[int] = []
    accepted = {}
    kept_parts: dict[int, list[Part]] = {}
    refusal: ForgeError | None = None
    try:
        if has_comment and (with_comment or findings is not None):
            base_branch = judgements[0].base.branch if judgements else None
            numbers = _pull_requests(repository, job, base_branch)
        for number in numbers:
            ours = find_report(repository, number, name)
            if ours is not None:
                kept_parts[number] = earlier_parts(ours.body, job.head_sha, reports)
        if findings is not None:
            # the report on a queued pull request stays that of its own head
            queued = [item.number for item in repository.queued_pull_requests(job)]
            for number in (*numbers, *queued):
                acceptance = valid_acceptance(
                    repository=repository,
                    number=number,
                    name=name,
                    findings=findings,
                    accept_by=accept_by,
                )
                if acceptance is not None:
                    accepted[number] = acceptance
    # The check must conclude before an error ends the job.
    except ForgeError as error:
        refusal = error
    sentences = {
        number: accepted_by(comment, reason) for number, (_, comment, reason) in accepted.items()
    }
    merged = merge([*parts, *next(iter(kept_parts.values()), [])], expected)
    check = CheckRun(
        conclusion=merged.conclusion,
        title=merged.title,
        summary=merged.text,
        annotations=annotations,
    )
    # A single result needs no summary of parts.
    if reports.keys() == {""} and len(merged.parts) == 1 and not expected:
        check = reports[""].check
    if sentences:
        check = check.accepted(next(iter(sentences.values())))
    missing: list[str] = []
    if tell_service is not None and findings is not None:
        for held, comment, reason in accepted.values():
            try:
                tell_service(
                    findings.project, to_service(repository, comment, reason, held, findings)
                )
            except ForgeError as error:
                missing.append(f"the acceptance in the service: {error}")
    conclusion = None
    if with_check:
        try:
            repository.conclude(job.head_sha, name, order, check, job.run.url)
            if check.conclusion is None:
                conclusion = "in_progress"
            else:
                conclusion = check.conclusion.value
        except ForgeError as error:
            missing.append(f"the check: {error}")
    # never leave a check-run in progress
    if refusal is not None:
        raise refusal
    comments = {}
    for number in numbers if with_comment else ():
        whole = merge([*parts, *kept_parts.get(number, [])], expected)
        orders = [order, *(part.order for part in whole.parts)]
        state = CommentState(order=max(orders), findings=findings, parts=whole.parts)
        body = compose(report_marker(name), state, whole.text)
        if number in accepted:
            body = with_acceptance(body, accepted[number][0], sentences[number])
        is_silent = all(report.is_silent for report in reports.values())
        try:
            comments[str(number)] = post_comment(repository, number, body, is_silent=is_silent)
        except ForgeError as error:
            missing.append(f"the comment on {number}: {error}")
    return Posted(
        comments=comments,
        check_run=conclusion,
        accepted_by=next((comment.login for _, comment, _ in accepted.values()), None),
        missing=tuple(missing),
    )


def begin_here(job: Job, name: str, variables: Mapping[str, str]) -> Iterator[str]:
    """Put a check-run in progress on the commit of a job; say so."""
    repository = open_forge(job, variables)
    repository.conclude(job.head_sha, name, job.run.order, BEGUN, job.run.url)
    yield f"check-run: in_progress ({BEGUN.title})"


def part_names(text: str) -> list[str]:
    """Read the names of parts, separated by commas.

    Raises:
        ForgeError: a name is not valid.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if not PART_NAME.fullmatch(name):
            raise ForgeError(f"--parts {name[:80]!r}: use letters, digits and . _ -")
    return names


def _part(name: str, report: Report, job: Job) -> Part:
    check = report.check
    assert check.conclusion is not None, "a part is a result"
    state = PartState(
        name=name,
        head_sha=job.head_sha,
        order=job.run.order,
        conclusion=check.conclusion,
        title=check.title,
    )
    return Part(state, report.comment or check.summary)


def _pull_requests(repository: Forge, job: Job, base_branch: str | None) -> list[int]:
    """Return the pull requests that a job is about; of several with one head, those into the
    measured base branch.
    """
    # Without a measured base, all pull requests with this head get the report.
    pull_requests = repository.pull_requests(job)
    numbers = [item.number for item in pull_requests if item.base_branch == base_branch]
    return numbers or [item.number for item in pull_requests]


def _require_commit(head: Commit, job: Job | None) -> None:
    """Raise `RecordError` unless a measured commit is the head of the job, or its merge into the
    target branch.
    """
    # GitHub checks out a merge of head and target, whose second parent is the head.
    merged = None
    if len(head.parents) == 2:
        merged = head.parents[1]
    if job is not None and job.head_sha not in {head.sha, merged}:
        raise RecordError(
            f"the record is of commit {head.sha}, the event is about {job.head_sha}: give "
            "actions/checkout `ref: ${{ github.event.pull_request.head.sha }}` and "
            "`fetch-depth: 0`, or measure with --head on GitLab"
        )
