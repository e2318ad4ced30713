"""Regressions of a pull request that somebody with write access accepted, until something else is found. Pure.

Our comment carries two hidden lines: what was found, and which comment accepted it. The second is only a pointer. Who
accepted, when and why is read from that comment each time, and GitHub is asked whether its author may still write;
deleting that comment withdraws the acceptance.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import re
from dataclasses import dataclass, replace

from roofwatch.ci.github.check_run import CheckRun, Conclusion
from roofwatch.ci.github.event import CommandError, Verb, WrittenComment, parse_command
from roofwatch.ci.report.findings import list_findings, worst_first
from roofwatch.ci.report.markdown import code
from roofwatch.ci.report.pull_request import PullRequestJudgement
from roofwatch.db.values import Verdict

_HEADER_LINES = 6
_MAX_PERMILLE = 10**9
_MAX_SUBJECT = 400
_VISIBLE = "> **Accepted** by `"
_FOUND = re.compile(
    r"<!-- roofwatch:found ([0-9a-f]{16}) (\d{1,10}) (\d{1,10}) ([0-9a-f]{40,64}) ([\w=-]+|\.) -->", re.ASCII
)
_ACCEPTED = re.compile(r"<!-- roofwatch:accepted (\d{1,18}) ([0-9a-f]{16}) (\d{1,10}) -->", re.ASCII)


@dataclass(frozen=True)
class Findings:
    """The regressions of a report, as far as it takes to see whether another report found the same."""

    digest: str
    """Of which cases, functions and metrics regressed and why, without numbers."""
    least_permille: int
    """Lower end of the interval of the worst slowdown, in thousandths; 0 if no time regressed."""
    most_permille: int
    """The upper end."""
    head_sha: str
    worst: tuple[str, str] | None = None
    """Case and implementation of the worst slowdown."""


@dataclass(frozen=True)
class AcceptanceMark:
    """Which comment accepted what."""

    comment_id: int
    digest: str
    most_permille: int

    def covers(self, findings: Findings) -> bool:
        """Whether the same things regressed, and none noticeably more."""
        return self.digest == findings.digest and findings.least_permille <= self.most_permille


@dataclass(frozen=True)
class Acceptance:
    """A mark with its comment's contents."""

    mark: AcceptanceMark
    login: str
    written_at: str
    reason: str

    @property
    def sentence(self) -> str:
        """Who, when and why, as Markdown."""
        return f"by {code(self.login)} on {code(self.written_at[:10])}: {code(self.reason, limit=200)}"


def findings_of(judgement: PullRequestJudgement, head_sha: str) -> Findings | None:
    """What there is to accept; None if nothing regressed."""
    if judgement.verdict is not Verdict.REGRESSED:
        return None
    regressed = [finding for finding in list_findings(judgement) if finding.verdict is Verdict.REGRESSED]
    names = sorted(f"{finding.name}\0{finding.reason}" for finding in regressed)
    timed = [
        (case.comparison.relative_interval, (case.case_id, case.implementation))
        for case in worst_first(judgement.cases)
        if case.verdict is Verdict.REGRESSED and case.comparison is not None
    ]
    return Findings(
        hashlib.sha256("\n".join(names).encode()).hexdigest()[:16],
        _permille(max((low for (low, _), _ in timed), default=0.0)),
        _permille(max((high for (_, high), _ in timed), default=0.0)),
        head_sha,
        timed[0][1] if timed else None,
    )


def found_line(findings: Findings) -> str:
    """The hidden line that stores them."""
    subject = base64.urlsafe_b64encode(json.dumps(findings.worst).encode()).decode() if findings.worst else "."
    if len(subject) > _MAX_SUBJECT:
        subject = "."
    numbers = f"{findings.least_permille} {findings.most_permille}"
    return f"<!-- roofwatch:found {findings.digest} {numbers} {findings.head_sha} {subject} -->"


def read_findings(body: str) -> Findings | None:
    """The findings in a comment of ours; None if it has none."""
    found = _in_header(body, _FOUND)
    if found is None:
        return None
    return Findings(found[1], int(found[2]), int(found[3]), found[4], _subject(found[5]))


def read_mark(body: str) -> AcceptanceMark | None:
    """The acceptance that a comment of ours points to."""
    found = _in_header(body, _ACCEPTED)
    return None if found is None else AcceptanceMark(int(found[1]), found[2], int(found[3]))


def acceptance_by(comment: WrittenComment, mark: AcceptanceMark) -> Acceptance | None:
    """The acceptance in a comment; None if it is none, or was edited since."""
    try:
        command = parse_command(comment.body)
    except CommandError:
        return None
    if command is None or command.verb is not Verb.ACCEPT:
        return None
    return Acceptance(mark, comment.login, comment.written_at, command.rest)


def with_acceptance(body: str, acceptance: Acceptance) -> str:
    """A comment of ours with an acceptance in place of the one it had."""
    lines = [line for line in body.splitlines() if not _ACCEPTED.fullmatch(line) and not line.startswith(_VISIBLE)]
    heading = next((index for index, line in enumerate(lines) if line.startswith("### ")), len(lines) - 1)
    mark = acceptance.mark
    visible = f"> **Accepted** {acceptance.sentence}. It holds until something else is found."
    lines[heading + 1 : heading + 1] = ["", visible]
    lines.insert(2, f"<!-- roofwatch:accepted {mark.comment_id} {mark.digest} {mark.most_permille} -->")
    return "\n".join(lines) + "\n"


def accepted_check(check: CheckRun, acceptance: Acceptance) -> CheckRun:
    """A check-run that blocks nothing any more, and says why."""
    return replace(
        check,
        conclusion=Conclusion.NEUTRAL,
        title=f"accepted: {check.title}"[:200],
        summary=f"**Accepted** {acceptance.sentence}.\n\n{check.summary}",
    )


def _in_header(body: str, form: re.Pattern[str]) -> re.Match[str] | None:
    """Search the lines that are ours alone: further below others are quoted."""
    matches = (form.fullmatch(line.rstrip()) for line in body.splitlines()[:_HEADER_LINES])
    return next((match for match in matches if match), None)


def _subject(text: str) -> tuple[str, str] | None:
    try:
        case_id, implementation = json.loads(base64.urlsafe_b64decode(text))
    except (ValueError, TypeError, binascii.Error):
        return None
    return str(case_id), str(implementation)


def _permille(change: float) -> int:
    return min(_MAX_PERMILLE, max(0, round(1_000 * change))) if math.isfinite(change) else _MAX_PERMILLE
