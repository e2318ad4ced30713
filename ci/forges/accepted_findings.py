"""Which findings of a pull request people with write access accepted."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from roofwatch.ci.forges.acceptance import Acceptance, Findings
from roofwatch.ci.forges.command_syntax import (
    Command,
    CommandError,
    Verb,
    commands_in,
    parse_command,
)
from roofwatch.ci.forges.comment import (
    Forge,
    accepted_by,
    find_report,
    read_state,
    with_acceptance,
)
from roofwatch.ci.forges.event import Comment
from roofwatch.ci.messages import code
from roofwatch.model.acceptance import PullRequestAcceptance
from roofwatch.model.claim import AcceptBy


def valid_acceptance(
    repository: Forge,
    number: int,
    name: str,
    findings: Findings,
    accept_by: AcceptBy,
) -> tuple[Acceptance, Comment, str] | None:
    """Return an acceptance of these findings with its comment and reason, if its author still may
    accept.
    """
    ours = find_report(repository, number, name)
    # a forge without jobs for comments reads them when it writes the report
    if ours is not None and not repository.starts_jobs_for_comments:
        ours = _with_new_acceptance(repository, ours, accept_by)
    acceptance = None
    if ours is not None:
        acceptance = read_state(ours.body).acceptance
    if acceptance is None or not acceptance.covers(findings):
        return None
    by_id = {comment.comment_id: comment for comment in repository.comments(number)}
    comment = by_id.get(acceptance.comment_id)
    if comment is None:
        return None
    command = next(iter(_acceptances_in(comment.body)), None)
    # write access may have been withdrawn since
    if command is None or why_may_not_accept(
        repository,
        number,
        comment.login,
        accept_by,
    ):
        return None
    return acceptance, comment, command.rest


def to_service(
    repository: Forge,
    comment: Comment,
    reason: str,
    acceptance: Acceptance,
    findings: Findings,
) -> PullRequestAcceptance:
    """Return what the service stores of an acceptance of these findings."""
    return PullRequestAcceptance(
        pull_request=f"{repository.number_mark}{comment.number}",
        comment_id=comment.comment_id,
        head_sha=findings.head_sha,
        person=comment.login,
        reason=reason,
        accepted_at=datetime.fromisoformat(comment.written_at),
        most=acceptance.most,
        grain=acceptance.grain,
        wrong_results=acceptance.wrong_results,
    )


def why_may_not_accept(
    repository: Forge,
    number: int,
    login: str,
    accept_by: AcceptBy,
) -> str | None:
    """Return why somebody may not accept the findings of a pull request; None if they may."""
    if not repository.may_write(login):
        return f"{code(login)} may not write to the repository"
    if accept_by is AcceptBy.ADMIN and not repository.may_administer(login):
        return "only an administrator of the repository may accept (`accept.by`)"
    if accept_by is AcceptBy.REVIEWER and login == repository.author(number):
        return (
            "the author alone cannot accept: somebody else with write access has to; "
            'a repository with one maintainer sets `accept.by = "anyone"`'
        )
    return None


def _with_new_acceptance(
    repository: Forge,
    ours: Comment,
    accept_by: AcceptBy,
) -> Comment:
    """Add to a report's state what somebody with write access accepted since it was last
    written.
    """
    findings = read_state(ours.body).findings
    written_at = datetime.fromisoformat(ours.updated_at)
    if findings is None or not findings.most:
        return ours
    for comment in repository.comments(ours.number):
        command = next(iter(_acceptances_in(comment.body)), None)
        # an earlier comment was about an earlier report
        is_newer = datetime.fromisoformat(comment.written_at) > written_at
        if command is None or not is_newer:
            continue
        if (
            why_may_not_accept(
                repository,
                ours.number,
                comment.login,
                accept_by,
            )
            is None
        ):
            acceptance = Acceptance(
                comment_id=comment.comment_id,
                most=findings.most,
                grain=findings.grain,
                wrong_results=command.wrong_results,
            )
            sentence = accepted_by(comment, command.rest)
            return replace(ours, body=with_acceptance(ours.body, acceptance, sentence))
    return ours


def _acceptances_in(body: str) -> Iterator[Command]:
    for line in commands_in(body):
        with contextlib.suppress(CommandError):
            command = parse_command(line)
            if command.verb is Verb.ACCEPT:
                yield command
