"""Carry out the command in a comment on a pull request, and answer it. Raises `GitHubError` if GitHub refuses.

Only people who may write to the repository are obeyed, by what GitHub says of them, not by the comment. Anybody else
gets a reaction and no reply, so nobody can make us speak.
"""

from __future__ import annotations

from dataclasses import dataclass

from roofwatch.ci.github.acceptance import (
    Acceptance,
    AcceptanceMark,
    Findings,
    acceptance_by,
    accepted_check,
    read_findings,
    read_mark,
    with_acceptance,
)
from roofwatch.ci.github.check_run import BEGUN, CheckRun, Conclusion
from roofwatch.ci.github.client import Comment, FoundCheckRun, GitHubRepository, UncertainError
from roofwatch.ci.github.event import Command, CommandError, CommandRequest, RunOrder, Verb, parse_command
from roofwatch.ci.github.posting import find_comment, post_check_run, post_comment, reply_to, run_of
from roofwatch.ci.report.markdown import code

BISECT_WORKFLOW = "bisect.yml"
AGREED, PUZZLED, REFUSED = "+1", "confused", "-1"


@dataclass(frozen=True)
class Reply:
    """What became of a comment."""

    verb: Verb | None
    """None if it was no command, or not to be obeyed."""
    reaction: str | None
    """None if it asked for nothing."""
    line: str
    """What was answered, as Markdown; to somebody who may not ask, for the log alone."""


class _CannotError(Exception):
    """Why a command has nothing to do, as Markdown."""


def carry_out(repository: GitHubRepository, request: CommandRequest, name: str) -> Reply:
    """Do what a comment asks for about the report of that name, if its author may ask."""
    comment, reaction = request.comment, PUZZLED
    try:
        command = parse_command(comment.body)
    except CommandError as error:
        command, answer = None, str(error)
    else:
        if command is None:
            return Reply(None, None, "no command")
        answer = ""
    if not repository.may_write(comment.login):
        repository.react(comment.comment_id, REFUSED)
        return Reply(None, REFUSED, f"{code(comment.login)} may not write to the repository")
    if command is not None:
        try:
            answer, reaction = _PullRequest(repository, request, name).obey(command), AGREED
        except _CannotError as error:
            answer = str(error)
        except UncertainError:
            answer = "GitHub did not say whether it did it; look before you ask again."
    repository.react(comment.comment_id, reaction)
    post_comment(repository, comment.number, reply_to(comment.comment_id, answer, request.run.order))
    return Reply(None if command is None else command.verb, reaction, answer)


def standing_acceptance(repository: GitHubRepository, number: int, name: str, findings: Findings) -> Acceptance | None:
    """The acceptance that an earlier comment of ours points to, if it covers what is found now."""
    ours = _credible_comment(repository, number, name)
    mark = None if ours is None else read_mark(ours.body)
    if mark is None or not mark.covers(findings):
        return None
    comment = repository.written_comment(mark.comment_id)
    if comment is None or comment.number != number:
        return None
    acceptance = acceptance_by(comment, mark)
    return acceptance if acceptance is not None and repository.may_write(acceptance.login) else None


class _PullRequest:
    """The pull request that a command is written on."""

    def __init__(self, repository: GitHubRepository, request: CommandRequest, name: str) -> None:
        self._repository, self._request, self._name = repository, request, name
        self._number = request.comment.number
        self._ends = repository.ends_of(self._number)

    def obey(self, command: Command) -> str:
        """Carry out a command; the answer as Markdown."""
        match command.verb:
            case Verb.ACCEPT:
                return self._accept()
            case Verb.RERUN:
                return self._rerun()
            case Verb.BISECT:
                return self._bisect(command.rest)

    def _accept(self) -> str:
        ours, findings = self._reported()
        head_sha = self._ends.head_sha
        if findings.head_sha != head_sha:
            raise _CannotError(
                f"What is told here was found at {code(findings.head_sha[:8])}, and the branch is at "
                f"{code(head_sha[:8])} now: accept what is found there, once it is."
            )
        mark = AcceptanceMark(self._request.comment.comment_id, findings.digest, findings.most)
        acceptance = acceptance_by(self._request.comment, mark)
        assert acceptance is not None, "it is what the comment says"
        if not self._repository.edit_comment(ours.comment_id, with_acceptance(ours.body, acceptance)):
            raise _CannotError("The comment that told it was deleted meanwhile; nothing was accepted.")
        found = self._newest_check_run()
        if found is not None and found.conclusion == Conclusion.FAILURE:
            check = accepted_check(CheckRun(Conclusion.FAILURE, found.title, found.summary), acceptance)
            self._repository.update_check_run(found.check_run_id, check, found.url)
        return f"Accepted {acceptance.sentence}. It holds until something else is found, or this command is deleted."

    def _rerun(self) -> str:
        head_sha = self._ends.head_sha
        found = self._newest_check_run()
        order = None if found is None else run_of(found)
        if found is None or order is None:
            raise _CannotError(f"Nothing was measured at {code(head_sha[:8])} yet, so there is nothing to run again.")
        if not found.is_completed:
            raise _CannotError("It is being measured just now.")
        self._repository.run_again(order.run_id)
        again = RunOrder(order.run_id, order.attempt + 1)
        post_check_run(self._repository, head_sha, self._name, again, BEGUN, found.url)
        return f"{code(head_sha[:8])} is measured again; the comment is brought up to date once that is done."

    def _bisect(self, named: str) -> str:
        series = "/".join(named.split())
        if not series:
            _, findings = self._reported()
            if findings.worst is None:
                raise _CannotError("No time regressed here: name the case and the implementation behind the command.")
            series = "/".join(findings.worst)
        ends = {"base": self._ends.base_sha, "head": self._ends.head_sha}
        inputs = {"series": series, **ends, "number": str(self._number)}
        self._repository.start_workflow(BISECT_WORKFLOW, self._request.default_branch, inputs)
        where = f"see the runs of {code(BISECT_WORKFLOW)}"
        return f"The commits of this pull request are searched for the one that moved {code(series)}: {where}."

    def _reported(self) -> tuple[Comment, Findings]:
        ours = _credible_comment(self._repository, self._number, self._name)
        findings = None if ours is None else read_findings(ours.body)
        if ours is None or findings is None:
            raise _CannotError("No regression is told on this pull request.")
        return ours, findings

    def _newest_check_run(self) -> FoundCheckRun | None:
        found = self._repository.check_runs(self._ends.head_sha, self._name)
        ours = [(order, one.check_run_id, one) for one in found if (order := run_of(one))]
        return max(ours, key=lambda each: each[:2], default=(None, None, None))[2]


def _credible_comment(repository: GitHubRepository, number: int, name: str) -> Comment | None:
    """The comment of a report, if its hidden lines can be believed: a bot's, or of somebody who may write here."""
    ours = find_comment(repository, number, name)
    if ours is None or ours.person is None or repository.may_write(ours.person):
        return ours
    return None
