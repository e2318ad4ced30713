"""Carry out what a comment on a pull request asks for, and answer it. What GitHub is, is the caller's: a `Repository`.

Only people who may write to the repository are obeyed, and that GitHub says of them, not the comment. Whoever else
asks gets a reaction and no word, so that nobody can make us speak.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

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
from roofwatch.ci.github.comment_command import Asked, Command, CommandError, Verb, WrittenComment, parse_command
from roofwatch.ci.github.event import RunOrder
from roofwatch.ci.github.posting import (
    Ends,
    FoundCheckRun,
    Repository,
    UncertainError,
    post_check_run,
    post_comment,
    run_of,
)
from roofwatch.ci.github.sticky_comment import Comment, answer_to, find_ours
from roofwatch.ci.report.markdown import code

BISECT_WORKFLOW = "bisect.yml"
AGREED, PUZZLED, REFUSED = "+1", "confused", "-1"


class CommandRepository(Repository, Protocol):
    """A repository on GitHub as far as commands reach it. Each may raise `GitHubError`."""

    def written_comment(self, comment_id: int) -> WrittenComment | None:
        """None if it is gone."""

    def may_write(self, login: str) -> bool: ...

    def ends_of(self, number: int) -> Ends: ...

    def react(self, comment_id: int, reaction: str) -> None: ...

    def run_again(self, run_id: int) -> None:
        """Raises `UncertainError` too."""

    def start_workflow(self, file_name: str, branch: str, inputs: Mapping[str, str]) -> None:
        """Raises `UncertainError` too."""


@dataclass(frozen=True)
class Answered:
    """What became of a comment."""

    verb: Verb | None
    """None where it was no command, or not to be obeyed."""
    reaction: str | None
    """None where it asked for nothing."""
    line: str
    """What was answered, as Markdown; of somebody who may not ask, for the log alone."""


class _CannotError(Exception):
    """Why a command has nothing to do; ours but for what is quoted."""


def carry_out(repository: CommandRepository, asked: Asked, name: str) -> Answered:
    """Do what a comment asks for, if its author may ask.

    Args:
        repository: Where.
        asked: What the event says.
        name: Of the report that is meant.

    Raises:
        GitHubError: GitHub refuses, or answers too badly.
    """
    comment = asked.comment
    try:
        command = parse_command(comment.body)
    except CommandError as error:
        command, answer = None, str(error)
    else:
        if command is None:
            return Answered(None, None, "no command")
        answer = ""
    if not repository.may_write(comment.login):
        repository.react(comment.comment_id, REFUSED)
        return Answered(None, REFUSED, f"{code(comment.login)} may not write to the repository")
    reaction = PUZZLED
    if command is not None:
        try:
            answer = _obey(repository, asked, command, name)
            reaction = AGREED
        except _CannotError as error:
            answer = str(error)
        except UncertainError:
            answer = "GitHub did not say whether it did it; look before you ask again."
    repository.react(comment.comment_id, reaction)
    post_comment(repository, comment.number, answer_to(comment.comment_id, answer, asked.surroundings.order))
    return Answered(None if command is None else command.verb, reaction, answer)


def standing_acceptance(repository: CommandRepository, number: int, name: str, findings: Findings) -> Acceptance | None:
    """The acceptance that an earlier comment of ours points to, if it holds for what is found now.

    Raises:
        GitHubError: GitHub refuses, or answers too badly.
    """
    ours = _find_ours(repository, number, name)
    mark = None if ours is None else read_mark(ours.body)
    if mark is None or not mark.covers(findings):
        return None
    comment = repository.written_comment(mark.comment_id)
    if comment is None or comment.number != number:
        return None
    acceptance = acceptance_by(comment, mark)
    return acceptance if acceptance is not None and repository.may_write(acceptance.login) else None


def _obey(repository: CommandRepository, asked: Asked, command: Command, name: str) -> str:
    if command.verb is Verb.ACCEPT:
        return _accept(repository, asked, name)
    if command.verb is Verb.RERUN:
        return _rerun(repository, asked, name)
    return _bisect(repository, asked, command, name)


def _accept(repository: CommandRepository, asked: Asked, name: str) -> str:
    number = asked.comment.number
    ours, findings = _told(repository, number, name)
    head_sha = repository.ends_of(number).head_sha
    if findings.head_sha != head_sha:
        raise _CannotError(
            f"What is told here was found at {code(findings.head_sha[:8])}, and the branch is at {code(head_sha[:8])} "
            "now: accept what is found there, once it is."
        )
    mark = AcceptanceMark(asked.comment.comment_id, findings.digest, findings.most_permille)
    acceptance = acceptance_by(asked.comment, mark)
    assert acceptance is not None, "it is what the comment says"
    if not repository.edit_comment(ours.comment_id, with_acceptance(ours.body, acceptance)):
        raise _CannotError("The comment that told it was deleted meanwhile; nothing was accepted.")
    found = _newest_check_run(repository, head_sha, name)
    if found is not None and found.conclusion == Conclusion.FAILURE:
        check = accepted_check(CheckRun(Conclusion.FAILURE, found.title, found.summary), acceptance)
        repository.update_check_run(found.check_run_id, check, found.url)
    return f"Accepted {acceptance.sentence}. It holds until something else is found, or this command is deleted."


def _rerun(repository: CommandRepository, asked: Asked, name: str) -> str:
    number = asked.comment.number
    head_sha = repository.ends_of(number).head_sha
    found = _newest_check_run(repository, head_sha, name)
    order = None if found is None else run_of(found.external_id)
    if found is None or order is None:
        raise _CannotError(f"Nothing was measured at {code(head_sha[:8])} yet, so there is nothing to run again.")
    if not found.is_completed:
        raise _CannotError("It is being measured just now.")
    repository.run_again(order.run_id)
    again = RunOrder(order.run_id, order.attempt + 1)
    post_check_run(repository, head_sha, name, again, BEGUN, found.url)
    return f"{code(head_sha[:8])} is measured again; the comment is brought up to date once that is done."


def _bisect(repository: CommandRepository, asked: Asked, command: Command, name: str) -> str:
    number = asked.comment.number
    series = "/".join(command.rest.split())
    if not series:
        _, findings = _told(repository, number, name)
        if findings.worst is None:
            raise _CannotError("No time regressed here: name the case and the implementation behind the command.")
        series = "/".join(findings.worst)
    ends = repository.ends_of(number)
    inputs = {"series": series, "base": ends.base_sha, "head": ends.head_sha, "number": str(number)}
    repository.start_workflow(BISECT_WORKFLOW, asked.default_branch, inputs)
    where = f"see the runs of {code(BISECT_WORKFLOW)}"
    return f"The commits of this pull request are searched for the one that moved {code(series)}: {where}."


def _told(repository: CommandRepository, number: int, name: str) -> tuple[Comment, Findings]:
    ours = _find_ours(repository, number, name)
    findings = None if ours is None else read_findings(ours.body)
    if ours is None or findings is None:
        raise _CannotError("No regression is told on this pull request.")
    return ours, findings


def _find_ours(repository: CommandRepository, number: int, name: str) -> Comment | None:
    """The comment of a report, if its hidden lines can be believed: a bot's, or of somebody who may write here."""
    ours = find_ours(repository.comments(number), name)
    if ours is None or ours.person is None or repository.may_write(ours.person):
        return ours
    return None


def _newest_check_run(repository: CommandRepository, head_sha: str, name: str) -> FoundCheckRun | None:
    ours = [(order, found) for found in repository.check_runs(head_sha, name) if (order := run_of(found.external_id))]
    return max(ours, key=lambda each: (each[0], each[1].check_run_id), default=(None, None))[1]
