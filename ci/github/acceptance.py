"""What somebody with write access accepted: findings of one pull request, until something else is found. Pure.

The comment carries two hidden lines: what was found, and which comment accepted it. The second is only a pointer. Who
accepted, when and why is read from the comment that it points to, each time, and whether its author may still write is
asked of GitHub; who deletes that comment takes the acceptance back.
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
from roofwatch.ci.github.comment_command import CommandError, Verb, WrittenComment, parse_command
from roofwatch.ci.report.markdown import code
from roofwatch.ci.report.pull_request import PullRequestJudgement
from roofwatch.ci.report.sections import worst_first
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
    """What a report found wrong, so far that it can be told whether another one found the same."""

    digest: str
    """Of which cases and functions regressed, and how; of no number."""
    least_permille: int
    """Of the worst slowdown, the lower end of its interval in thousandths; 0 where none is in times."""
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
        """Whether nothing else regressed since, and what did not noticeably more."""
        return self.digest == findings.digest and findings.least_permille <= self.most_permille


@dataclass(frozen=True)
class Acceptance:
    """A mark with what its comment says."""

    mark: AcceptanceMark
    login: str
    written_at: str
    reason: str

    @property
    def sentence(self) -> str:
        """Who, when and why, as Markdown."""
        return f"by {code(self.login)} on {code(self.written_at[:10])}: {code(self.reason, limit=200)}"


def findings_of(judgement: PullRequestJudgement, head_sha: str) -> Findings | None:
    """What there is to accept; None where nothing regressed."""
    if judgement.verdict is not Verdict.REGRESSED:
        return None
    cases = [case for case in judgement.cases if case.verdict is Verdict.REGRESSED]
    kernels = [item for item in judgement.static if item.verdict is Verdict.REGRESSED]
    names = sorted(
        [
            *(f"{case.case_id}\0{case.implementation}\0{case.reason}" for case in cases),
            *(
                f"{item.case_id}\0{item.implementation}\0{item.function}\0{item.target}\0{item.reason}"
                for item in kernels
            ),
            *(
                f"{move.case_id}\0{move.implementation}\0{move.reason}"
                for move in judgement.secondary_changes
                if move.verdict is Verdict.REGRESSED
            ),
        ]
    )
    intervals = [case.comparison.relative_interval for case in cases if case.comparison is not None]
    slowest = next((case for case in worst_first(cases) if case.comparison is not None), None)
    return Findings(
        hashlib.sha256("\n".join(names).encode()).hexdigest()[:16],
        _permille(max((low for low, _ in intervals), default=0.0)),
        _permille(max((high for _, high in intervals), default=0.0)),
        head_sha,
        None if slowest is None else (slowest.case_id, slowest.implementation),
    )


def found_line(findings: Findings) -> str:
    """The hidden line that keeps them."""
    subject = base64.urlsafe_b64encode(json.dumps(findings.worst).encode()).decode() if findings.worst else "."
    if len(subject) > _MAX_SUBJECT:
        subject = "."
    numbers = f"{findings.least_permille} {findings.most_permille}"
    return f"<!-- roofwatch:found {findings.digest} {numbers} {findings.head_sha} {subject} -->"


def read_findings(body: str) -> Findings | None:
    """What a comment of ours says that was found; None where nothing was."""
    found = _in_header(body, _FOUND)
    if found is None:
        return None
    return Findings(found[1], int(found[2]), int(found[3]), found[4], _subject(found[5]))


def read_mark(body: str) -> AcceptanceMark | None:
    """Which acceptance a comment of ours points to."""
    found = _in_header(body, _ACCEPTED)
    return None if found is None else AcceptanceMark(int(found[1]), found[2], int(found[3]))


def acceptance_by(comment: WrittenComment, mark: AcceptanceMark) -> Acceptance | None:
    """What a comment accepts; None if that is not what it says, or not any more."""
    try:
        command = parse_command(comment.body)
    except CommandError:
        return None
    if command is None or command.verb is not Verb.ACCEPT:
        return None
    return Acceptance(mark, comment.login, comment.written_at, command.rest)


def with_acceptance(body: str, acceptance: Acceptance) -> str:
    """A comment of ours that says what was accepted, in place of what it said before."""
    lines = [line for line in body.splitlines() if not _ACCEPTED.fullmatch(line) and not line.startswith(_VISIBLE)]
    heading = next((index for index, line in enumerate(lines) if line.startswith("### ")), len(lines) - 1)
    mark = acceptance.mark
    said = f"> **Accepted** {acceptance.sentence}. It holds until something else is found."
    lines[heading + 1 : heading + 1] = ["", said]
    lines.insert(2, f"<!-- roofwatch:accepted {mark.comment_id} {mark.digest} {mark.most_permille} -->")
    return "\n".join(lines) + "\n"


def accepted_check(check: CheckRun, acceptance: Acceptance) -> CheckRun:
    """A check-run that holds nothing up any more, and says why."""
    return replace(
        check,
        conclusion=Conclusion.NEUTRAL,
        title=f"accepted: {check.title}"[:200],
        summary=f"**Accepted** {acceptance.sentence}.\n\n{check.summary}",
    )


def _in_header(body: str, form: re.Pattern[str]) -> re.Match[str] | None:
    """Found in the lines that are ours alone: further below others are quoted."""
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
