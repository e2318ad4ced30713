"""Carry out the command in a comment on a pull request, and reply.

Only people with write access are allowed. Others get a reaction and no reply.
"""

from dataclasses import dataclass
from enum import StrEnum

from roofwatch.ci.github.acceptance import MAX_BOUNDS, MAX_SERIES, Acceptance, Findings
from roofwatch.ci.github.check_run import BEGUN, CheckRun, Conclusion, post_check_run
from roofwatch.ci.github.client import FoundCheckRun, GitHubRepository
from roofwatch.ci.github.comment import (
    CommentState,
    accepted_by,
    compose,
    find_report,
    post_comment,
    read_state,
    with_acceptance,
)
from roofwatch.ci.github.event import CommandRequest, Comment, RunOrder
from roofwatch.ci.report.markdown import code

COMMAND_PREFIX = "/roofwatch"
USAGE = "`/roofwatch accept <reason>`, `/roofwatch rerun` or `/roofwatch bisect [<case> <implementation>]`"
BISECT_WORKFLOW = "bisect.yml"
AGREED, CONFUSED, REFUSED = "+1", "confused", "-1"
_MAX_REASON = 200
"""Characters."""


class Verb(StrEnum):
    ACCEPT = "accept"
    RERUN = "rerun"
    BISECT = "bisect"


@dataclass(frozen=True)
class Command:
    verb: Verb
    rest: str
    """The reason, or the series."""


@dataclass(frozen=True)
class Reply:
    """The result of a command."""

    verb: Verb | None
    """None if the comment is not a valid command, or its author has no write access."""
    reaction: str | None
    line: str
    """Markdown; only for the log if the author has no write access."""


class CommandError(Exception):
    """A command cannot be parsed or has nothing to do; the text is Markdown."""


def is_command(body: str) -> bool:
    """Return whether the first line of a comment starts with the prefix of commands."""
    return _first_words(body)[:1] == [COMMAND_PREFIX]


def parse_command(body: str) -> Command:
    """Parse the command in the first line of a comment.

    Raises:
        CommandError: the command is not valid.
    """
    words = _first_words(body)
    verb, rest = words[1] if len(words) > 1 else "", " ".join(words[2:])
    if not is_command(body) or verb not in list(Verb):
        raise CommandError(f"unknown command; there are {USAGE}")
    if verb == Verb.ACCEPT and not rest:
        raise CommandError(f"a reason is missing: `{COMMAND_PREFIX} accept <reason>`")
    if verb == Verb.RERUN and rest:
        raise CommandError(f"`{COMMAND_PREFIX} rerun` takes no arguments")
    if verb == Verb.BISECT and (len(rest) > MAX_SERIES or not rest.isprintable() or rest.startswith("-")):
        raise CommandError("name a case and an implementation: `/roofwatch bisect <case> <implementation>`")
    return Command(Verb(verb), rest[:_MAX_REASON] if verb == Verb.ACCEPT else rest)


def _first_words(body: str) -> list[str]:
    return (body.strip().splitlines() or [""])[0].split()


def valid_acceptance(
    repository: GitHubRepository, number: int, name: str, findings: Findings
) -> tuple[Acceptance, Comment, str] | None:
    """Return an acceptance of these findings with its comment and reason, if its author still has write access."""
    ours = find_report(repository, number, name)
    acceptance = None if ours is None else read_state(ours.body).acceptance
    if acceptance is None or not acceptance.covers(findings):
        return None
    comment = repository.comment(acceptance.comment_id)
    if comment is None or comment.number != number:
        return None
    try:
        command = parse_command(comment.body)
    except CommandError:
        return None
    if command.verb is not Verb.ACCEPT or not repository.may_write(comment.login):
        return None
    return acceptance, comment, command.rest


def carry_out(repository: GitHubRepository, request: CommandRequest, name: str) -> Reply:
    """Carry out the command in a comment about the report of that name.

    Raises:
        GitHubError: GitHub refuses.
    """
    comment, verb, reaction = request.comment, None, CONFUSED
    if not is_command(comment.body):
        return Reply(None, None, "no command")
    if not repository.may_write(comment.login):
        repository.react(comment.comment_id, REFUSED)
        return Reply(None, REFUSED, f"{code(comment.login)} may not write to the repository")
    try:
        command = parse_command(comment.body)
        verb = command.verb
        answer, reaction = _PullRequest(repository, request, name).carry_out(command), AGREED
    except CommandError as error:
        answer = str(error)
    repository.react(comment.comment_id, reaction)
    marker = f"<!-- roofwatch:answer {comment.comment_id} -->"
    post_comment(repository, comment.number, compose(marker, CommentState(order=request.run.order), answer))
    return Reply(verb, reaction, answer)


class _PullRequest:
    def __init__(self, repository: GitHubRepository, request: CommandRequest, name: str) -> None:
        self._repository, self._request, self._name = repository, request, name
        self._number = request.comment.number
        self._base_sha, self._head_sha = repository.commits_of(self._number)

    def carry_out(self, command: Command) -> str:
        """Carry out a command; return the answer as Markdown."""
        match command.verb:
            case Verb.ACCEPT:
                return self._accept(command.rest)
            case Verb.RERUN:
                return self._rerun()
            case Verb.BISECT:
                return self._bisect(command.rest)

    def _accept(self, reason: str) -> str:
        ours, findings = self._reported()
        head_sha = self._head_sha
        if findings.head_sha != head_sha:
            raise CommandError(
                f"The report is of {code(findings.head_sha[:8])}, and the branch is at {code(head_sha[:8])} now: "
                "wait for the report of that commit."
            )
        if not findings.most:
            raise CommandError(f"A comment can accept at most {MAX_BOUNDS} findings, and there are more.")
        acceptance = Acceptance(comment_id=self._request.comment.comment_id, most=findings.most)
        sentence = accepted_by(self._request.comment, reason)
        if not self._repository.edit_comment(ours.comment_id, with_acceptance(ours.body, acceptance, sentence)):
            raise CommandError("The report was deleted meanwhile; nothing was accepted.")
        found = self._newest_check_run()
        if found is not None and found.conclusion == Conclusion.FAILURE:
            check = CheckRun(Conclusion.FAILURE, found.title, found.summary).accepted(sentence)
            self._repository.update_check_run(found.check_run_id, check.to_json(found.url))
        return f"Accepted {sentence}. It holds until something else is found, or this command is deleted."

    def _rerun(self) -> str:
        head_sha = self._head_sha
        found = self._newest_check_run()
        if found is None or found.order is None:
            raise CommandError(f"{code(head_sha[:8])} was not measured yet, so there is nothing to run again.")
        if not found.is_completed:
            raise CommandError("The measurement is still running.")
        self._repository.run_again(found.order.run_id)
        again = RunOrder(found.order.run_id, found.order.attempt + 1)
        post_check_run(self._repository, head_sha, self._name, again, BEGUN, found.url)
        return f"{code(head_sha[:8])} is being measured again; the report will be updated."

    def _bisect(self, named: str) -> str:
        series = "/".join(named.split())
        if not series:
            _, findings = self._reported()
            if findings.worst is None:
                raise CommandError("No time regressed here: name a case and an implementation.")
            series = "/".join(findings.worst)
        inputs = {"series": series, "base": self._base_sha, "head": self._head_sha, "number": str(self._number)}
        self._repository.start_workflow(BISECT_WORKFLOW, self._request.default_branch, inputs)
        return (
            f"Searching the commits of this pull request for the one that changed {code(series)}: see the runs of "
            f"{code(BISECT_WORKFLOW)}."
        )

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
