"""Regressions of a pull request that somebody with write access accepted, until something else is found. Pure.

Our comment carries two hidden lines: what was found, and which comment accepted it. The second is only a pointer. Who
accepted, when and why is read from that comment each time, and GitHub is asked whether its author may still write;
deleting that comment withdraws the acceptance.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass, replace
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from roofwatch.ci.github.check_run import CheckRun, Conclusion
from roofwatch.ci.github.event import CommandError, Verb, WrittenComment, parse_command
from roofwatch.ci.report.findings import list_findings, worst_first
from roofwatch.ci.report.markdown import code
from roofwatch.ci.report.pull_request import PullRequestJudgement
from roofwatch.db.values import Verdict

_T = TypeVar("_T")
_HEADER_LINES = 6
_MAX_CHANGE = 1e6
_MAX_SUBJECT_BYTES = 300
_VISIBLE = "> **Accepted** by `"
_HIDDEN = re.compile(r"<!-- roofwatch:(found|accepted) ([A-Za-z0-9+/=]{1,4000}) -->")


@dataclass(frozen=True)
class Findings:
    """The regressions of a report, as far as it takes to see whether another report found the same."""

    digest: str
    """Of which cases, functions and metrics regressed and why, without numbers."""
    least: float
    """Lower end of the interval of the worst slowdown, as a relative change; 0 if no time regressed."""
    most: float
    """The upper end."""
    head_sha: str
    worst: tuple[str, str] | None = None
    """Case and implementation of the worst slowdown."""


@dataclass(frozen=True)
class AcceptanceMark:
    """Which comment accepted what."""

    comment_id: int
    digest: str
    most: float

    def covers(self, findings: Findings) -> bool:
        """Whether the same things regressed, and none noticeably more."""
        return self.digest == findings.digest and findings.least <= self.most


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


_FINDINGS, _MARK = TypeAdapter(Findings), TypeAdapter(AcceptanceMark)


def findings_of(judgement: PullRequestJudgement, head_sha: str) -> Findings | None:
    """What there is to accept; None if nothing regressed."""
    if judgement.verdict is not Verdict.REGRESSED:
        return None
    regressed = [finding for finding in list_findings(judgement) if finding.verdict is Verdict.REGRESSED]
    names = sorted(f"{finding.name}\0{finding.reason}" for finding in regressed)
    slower = [
        (case.comparison.relative_interval, (case.case_id, case.implementation))
        for case in worst_first(judgement.cases)
        if case.verdict is Verdict.REGRESSED and case.comparison is not None
    ]
    worst = slower[0][1] if slower and len("".join(slower[0][1]).encode()) <= _MAX_SUBJECT_BYTES else None
    return Findings(
        digest=hashlib.sha256("\n".join(names).encode()).hexdigest()[:16],
        least=min(max((low for (low, _), _ in slower), default=0.0), _MAX_CHANGE),
        most=min(max((high for (_, high), _ in slower), default=0.0), _MAX_CHANGE),
        head_sha=head_sha,
        worst=worst,
    )


def found_line(findings: Findings) -> str:
    """The hidden line that stores them."""
    return _hidden_line("found", _FINDINGS.dump_json(findings))


def read_findings(body: str) -> Findings | None:
    """The findings in a comment of ours; None if it has none."""
    return _read(body, "found", _FINDINGS)


def read_mark(body: str) -> AcceptanceMark | None:
    """The acceptance that a comment of ours points to."""
    return _read(body, "accepted", _MARK)


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
    lines = [line for line in body.splitlines() if _kind(line) != "accepted" and not line.startswith(_VISIBLE)]
    heading = next((index for index, line in enumerate(lines) if line.startswith("### ")), len(lines) - 1)
    visible = f"> **Accepted** {acceptance.sentence}. It holds until something else is found."
    lines[heading + 1 : heading + 1] = ["", visible]
    lines.insert(2, _hidden_line("accepted", _MARK.dump_json(acceptance.mark)))
    return "\n".join(lines) + "\n"


def accepted_check(check: CheckRun, acceptance: Acceptance) -> CheckRun:
    """A check-run that blocks nothing any more, and says why."""
    return replace(
        check,
        conclusion=Conclusion.NEUTRAL,
        title=f"accepted: {check.title}"[:200],
        summary=f"**Accepted** {acceptance.sentence}.\n\n{check.summary}",
    )


def _hidden_line(kind: str, document: bytes) -> str:
    return f"<!-- roofwatch:{kind} {base64.b64encode(document).decode()} -->"


def _kind(line: str) -> str | None:
    found = _HIDDEN.fullmatch(line.rstrip())
    return None if found is None else found[1]


def _read(body: str, kind: str, adapter: TypeAdapter[_T]) -> _T | None:
    """Read a hidden line. Only the first lines are ours alone: others are quoted further below."""
    line = next((line.rstrip() for line in body.splitlines()[:_HEADER_LINES] if _kind(line) == kind), None)
    try:
        return None if line is None else adapter.validate_json(base64.b64decode(line.split()[2]))
    except (ValidationError, binascii.Error):
        return None
