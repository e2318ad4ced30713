"""Carry out the commands in a comment on a pull request, or in the name of a label, and reply.

Only people with write access are allowed. Others get a reaction and no reply.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt

from roofwatch.ci.github.acceptance import MAX_SERIES, Acceptance, Findings
from roofwatch.ci.github.check_run import BEGUN, CheckRun, Conclusion
from roofwatch.ci.github.comment import (
    CommentState,
    Forge,
    accepted_by,
    compose,
    find_report,
    post_comment,
    read_state,
    with_acceptance,
)
from roofwatch.ci.github.event import (
    ActionsRun,
    CommandRequest,
    Comment,
    RequestedMeasurement,
    RunOrder,
)
from roofwatch.ci.messages import ForgeError, code

if TYPE_CHECKING:
    from roofwatch.ci.github.client import FoundCheckRun, GitHubRepository

COMMAND_PREFIX = "/roofwatch"
USAGE = (
    "`/roofwatch accept <reason>`, `/roofwatch rerun`, `/roofwatch run [<runner>] [<commit>]` or "
    "`/roofwatch bisect [<case> <implementation>] [on <runner>]`"
)
AGREED, CONFUSED, REFUSED = "+1", "confused", "-1"
_MAX_REASON = 200
"""Characters."""
_RUNNER = re.compile(r"[\w.-]{1,60}", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


class Verb(StrEnum):
    ACCEPT = "accept"
    RERUN = "rerun"
    RUN = "run"
    BISECT = "bisect"


@dataclass(frozen=True)
class Command:
    verb: Verb
    rest: str
    """The reason, the commit or the series."""
    runner: str = ""


@dataclass(frozen=True)
class Reply:
    """The result of the commands in a comment."""

    verbs: tuple[Verb, ...] = ()
    """Of the commands that were carried out."""
    reaction: str | None = None
    """None if the comment has no command."""
    line: str = "no command"
    """Markdown; only for the log if the author has no write access."""
    requests: tuple[RequestedMeasurement, ...] = ()
    """What another job has to measure."""


class CommandError(Exception):
    """A command cannot be parsed or has nothing to do; the text is Markdown."""


def commands_in(body: str) -> list[str]:
    """Return the lines that start with the prefix, if the first line does; code blocks and quotes
    do not count.
    """
    blocks = pairwise(MarkdownIt("commonmark").parse(body))
    lines = [
        line.strip()
        for opening, inside in blocks
        if opening.type == "paragraph_open" and opening.level == 0
        for line in inside.content.splitlines()
    ]
    found = [line for line in lines if line.split()[:1] == [COMMAND_PREFIX]]
    return (
        found if found[:1] == lines[:1] and body.lstrip("\r\n").startswith(COMMAND_PREFIX) else []
    )


def parse_command(line: str) -> Command:
    """Parse a command.

    Raises:
        CommandError: the command is not valid.
    """
    verb, *words = [*line.split()[1:], ""]
    rest, runner = " ".join(words).strip(), ""
    if verb not in list(Verb):
        raise CommandError(f"unknown command; there are {USAGE}")
    if verb == Verb.ACCEPT and not rest:
        raise CommandError(f"a reason is missing: `{COMMAND_PREFIX} accept <reason>`")
    if verb == Verb.RERUN and rest:
        raise CommandError(f"`{COMMAND_PREFIX} rerun` takes no arguments")
    if verb == Verb.RUN:
        runner, _, rest = ("", "", rest) if _COMMIT.fullmatch(rest) else rest.partition(" ")
    if verb == Verb.BISECT and len(words) > 2 and words[-3] == "on":
        rest, runner = " ".join(words[:-3]), words[-2]
    if verb == Verb.BISECT and (
        len(rest) > MAX_SERIES or not rest.isprintable() or rest.startswith("-")
    ):
        raise CommandError(
            "name a case and an implementation: `/roofwatch bisect <case> <implementation>`"
        )
    if (runner and not _RUNNER.fullmatch(runner)) or (
        verb == Verb.RUN and rest and not _COMMIT.fullmatch(rest)
    ):
        raise CommandError(
            f"name a label of the runner, and perhaps a commit: `{COMMAND_PREFIX} run h100 "
            f"0123abcd`"
        )
    return Command(Verb(verb), rest[:_MAX_REASON] if verb == Verb.ACCEPT else rest, runner)


def valid_acceptance(
    repository: Forge, number: int, name: str, findings: Findings
) -> tuple[Acceptance, Comment, str] | None:
    """Return an acceptance of these findings with its comment and reason, if its author still has
    write access.
    """
    ours = find_report(repository, number, name)
    if ours is not None and not repository.starts_jobs_for_comments:
        ours = _with_new_acceptance(repository, ours)
    acceptance = None if ours is None else read_state(ours.body).acceptance
    if acceptance is None or not acceptance.covers(findings):
        return None
    comment = next(
        (one for one in repository.comments(number) if one.comment_id == acceptance.comment_id),
        None,
    )
    if comment is None:
        return None
    reason = next(iter(_reasons_in(comment.body)), None)
    if reason is None or not repository.may_write(comment.login):
        return None
    return acceptance, comment, reason


def _with_new_acceptance(repository: Forge, ours: Comment) -> Comment:
    """Add to a report's state what somebody with write access accepted since it was last
    written.
    """
    findings, written_at = read_state(ours.body).findings, datetime.fromisoformat(ours.updated_at)
    if findings is None or not findings.most:
        return ours
    for comment in repository.comments(ours.number):
        reason = next(iter(_reasons_in(comment.body)), None)
        is_newer = datetime.fromisoformat(comment.written_at) > written_at
        if reason is not None and is_newer and repository.may_write(comment.login):
            acceptance = Acceptance(
                comment_id=comment.comment_id, most=findings.most, grain=findings.grain
            )
            return replace(
                ours, body=with_acceptance(ours.body, acceptance, accepted_by(comment, reason))
            )
    return ours


def _reasons_in(body: str) -> Iterator[str]:
    for line in commands_in(body):
        with contextlib.suppress(CommandError):
            command = parse_command(line)
            if command.verb is Verb.ACCEPT:
                yield command.rest


def carry_out(repository: GitHubRepository, request: CommandRequest, name: str) -> Reply:
    """Carry out the commands in a comment about the report of that name.

    Raises:
        ForgeError: GitHub refuses to show the pull request, or the reply.
    """
    comment, lines = request.comment, commands_in(request.comment.body)
    if not lines:
        return Reply()
    is_label = request.labelled_sha is not None
    if not repository.may_write(comment.login):
        if not is_label:
            repository.react(comment.comment_id, REFUSED)
        return Reply((), REFUSED, f"{code(comment.login)} may not write to the repository")
    pull_request = _PullRequest(repository, request, name)
    verbs, answers, reaction = [], [], AGREED
    for line in lines:
        try:
            command = parse_command(line)
            answers.append(pull_request.carry_out(command))
            verbs.append(command.verb)
        except CommandError as error:
            answers.append(str(error))
            reaction = CONFUSED
        except ForgeError as error:
            answers.append(f"GitHub refused: {code(str(error), limit=600)}")
            reaction = CONFUSED
    if len(lines) > 1:
        answers = [f"- {code(line)}: {answer}" for line, answer in zip(lines, answers, strict=True)]
    answer = "\n".join(answers)
    if not is_label:
        repository.react(comment.comment_id, reaction)
    reply(repository, comment.number, f"answer {comment.comment_id}", request.run, answer)
    return Reply(tuple(verbs), reaction, answer, tuple(pull_request.requests))


def reply(repository: Forge, number: int, key: str, run: ActionsRun, text: str) -> None:
    """Leave one comment with that key on a pull request."""
    post_comment(
        repository,
        number,
        compose(f"<!-- roofwatch:{key} -->", CommentState(order=run.order), text),
    )


def describe(request: RequestedMeasurement, run: ActionsRun) -> str:
    """Write which commit is measured where, with a link to the run, as Markdown."""
    where = f" on {code(request.runner)}" if request.runner else ""
    return f"{code(request.head[:8])}{where}" + (f" ([run]({run.url}))" if run.url else "")


class _PullRequest:
    def __init__(self, repository: GitHubRepository, request: CommandRequest, name: str) -> None:
        self._repository, self._request, self._name = repository, request, name
        self._number = request.comment.number
        self._branch, self._head_sha = repository.branch_and_head(self._number)
        self.requests: list[RequestedMeasurement] = []

    def carry_out(self, command: Command) -> str:
        """Carry out a command; return the answer as Markdown."""
        match command.verb:
            case Verb.ACCEPT:
                return self._accept(command.rest)
            case Verb.RERUN:
                return self._rerun()
            case Verb.RUN:
                return self._request_measurement(command, self._reviewed(command.rest), "")
            case Verb.BISECT:
                return self._request_measurement(
                    command, self._reviewed(""), self._series(command.rest)
                )

    def _accept(self, reason: str) -> str:
        if self._request.labelled_sha is not None:
            raise CommandError(f"A label cannot accept: write `{COMMAND_PREFIX} accept <reason>`.")
        ours, findings = self._reported()
        head_sha = self._head_sha
        if findings.head_sha != head_sha:
            raise CommandError(
                f"The report is of {code(findings.head_sha[:8])}, and the branch is at "
                f"{code(head_sha[:8])} now: "
                "wait for the report of that commit."
            )
        acceptance = Acceptance(
            comment_id=self._request.comment.comment_id, most=findings.most, grain=findings.grain
        )
        sentence = accepted_by(self._request.comment, reason)
        if not self._repository.edit_comment(
            ours, with_acceptance(ours.body, acceptance, sentence)
        ):
            raise CommandError("The report was deleted meanwhile; nothing was accepted.")
        found = self._newest_check_run()
        if found is not None and found.conclusion == Conclusion.FAILURE:
            check = CheckRun(Conclusion.FAILURE, found.title, found.summary).accepted(sentence)
            self._repository.update_check_run(found.check_run_id, next(check.requests(found.url)))
        return (
            f"Accepted {sentence}. It holds until something else is found, or this command is "
            f"deleted."
        )

    def _rerun(self) -> str:
        head_sha = self._head_sha
        found = self._newest_check_run()
        if found is None or found.order is None:
            raise CommandError(
                f"{code(head_sha[:8])} was not measured yet, so there is nothing to run again."
            )
        if not found.is_completed:
            raise CommandError("The measurement is still running.")
        self._repository.run_again(found.order.run_id)
        again = RunOrder(found.order.run_id, found.order.attempt + 1)
        self._repository.conclude(head_sha, self._name, again, BEGUN, found.url)
        return f"{code(head_sha[:8])} is being measured again; the report will be updated."

    def _reviewed(self, named: str) -> str:
        """Return the commit that the author of the command has seen: a branch may move between
        command and job.
        """
        head_sha = self._head_sha
        if self._request.labelled_sha is not None:
            return self._request.labelled_sha
        if named and not head_sha.startswith(named):
            raise CommandError(
                f"The branch is at {code(head_sha[:8])}, not at {code(named[:8])}: review that "
                f"commit."
            )
        checks = self._repository.check_runs(head_sha, self._name)
        started_at = [check.started_at for check in checks if check.order is not None]
        if named or (started_at and min(started_at) <= self._request.comment.written_at):
            return head_sha
        raise CommandError(
            f"{code(head_sha[:8])} was not reported before your comment, so you may not have seen "
            f"it. "
            f"Review it and write the command again, for a run with the commit: `run <runner> "
            f"{head_sha[:8]}`."
        )

    def _request_measurement(self, command: Command, head_sha: str, series: str) -> str:
        request = RequestedMeasurement(
            verb="run" if command.verb is Verb.RUN else "bisect",
            number=self._number,
            head=head_sha,
            base=self._branch,
            runner=command.runner,
            series=series,
            reply=f"{self._request.comment.comment_id}.{len(self.requests)}",
        )
        self.requests.append(request)
        what = (
            f"Searching for the commit that changed {code(series)}, up to"
            if series
            else "Measuring"
        )
        return f"{what} {describe(request, self._request.run)}. The result will be a reply here."

    def _series(self, named: str) -> str:
        series = "/".join(named.split())
        if series:
            return series
        _, findings = self._reported()
        if findings.worst is None:
            raise CommandError("No time regressed here: name a case and an implementation.")
        return "/".join(findings.worst)

    def _reported(self) -> tuple[Comment, Findings]:
        ours = find_report(self._repository, self._number, self._name)
        findings = None if ours is None else read_state(ours.body).findings
        if ours is None or findings is None:
            raise CommandError("No regression is reported on this pull request.")
        return ours, findings

    def _newest_check_run(self) -> FoundCheckRun | None:
        found = self._repository.check_runs(self._head_sha, self._name)
        ours = [(one.order, one.check_run_id, one) for one in found if one.order is not None]
        return max(ours, key=lambda each: each[:2], default=(None, None, None))[2]
