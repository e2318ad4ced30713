"""Carry out the commands in a comment on a pull request, or in the name of a label, and reply.

Only people with write access are allowed. Others get a reaction and no reply.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roofwatch.ci.forges.acceptance import Acceptance, Findings
from roofwatch.ci.forges.accepted_findings import to_service, why_may_not_accept
from roofwatch.ci.forges.check_run import BEGUN, CheckRun, Conclusion
from roofwatch.ci.forges.command_syntax import (
    COMMAND_PREFIX,
    WRONG_RESULT,
    Command,
    CommandError,
    Verb,
    commands_in,
    parse_command,
)
from roofwatch.ci.forges.comment import (
    CommentState,
    Forge,
    accepted_by,
    compose,
    find_report,
    post_comment,
    read_state,
    with_acceptance,
)
from roofwatch.ci.forges.event import (
    ActionsRun,
    CommandRequest,
    Comment,
    RequestedMeasurement,
    RunOrder,
)
from roofwatch.ci.messages import ForgeError, code, count_of
from roofwatch.model.acceptance import PullRequestAcceptance
from roofwatch.model.claim import AcceptBy

if TYPE_CHECKING:
    from roofwatch.ci.forges.client import FoundCheckRun, GitHubRepository

TellService = Callable[[str, PullRequestAcceptance], None]
"""Stores an acceptance of a project in the service, or raises `ForgeError`."""
AGREED = "+1"
CONFUSED = "confused"
REFUSED = "-1"


@dataclass(frozen=True)
class CommandReply:
    """The result of the commands in a comment."""

    verbs: tuple[Verb, ...] = ()
    """Of the commands that were carried out."""
    reaction: str | None = None
    """None if the comment has no command."""
    line: str = "no command"
    """Markdown; only for the log if the author has no write access."""
    requests: tuple[RequestedMeasurement, ...] = ()
    """What another job has to measure."""


def carry_out(
    repository: GitHubRepository,
    request: CommandRequest,
    name: str,
    accept_by: AcceptBy = AcceptBy.REVIEWER,
    tell_service: TellService | None = None,
) -> CommandReply:
    """Carry out the commands in a comment about the report of that name.

    `tell_service` stores an acceptance, if there is a service.

    Raises:
        ForgeError: GitHub refuses to show the pull request, or the reply.
    """
    comment = request.comment
    lines = commands_in(request.comment.body)
    if not lines:
        return CommandReply()
    is_label = request.labelled_sha is not None
    # anybody may comment on a public repository
    if not repository.may_write(comment.login):
        if not is_label:
            repository.react(comment.comment_id, REFUSED)
        return CommandReply(
            verbs=(),
            reaction=REFUSED,
            line=f"{code(comment.login)} may not write to the repository",
        )
    pull_request = _PullRequest(
        repository,
        request,
        name,
        accept_by,
        tell_service,
    )
    verbs = []
    answers = []
    reaction = AGREED
    for line in lines:
        try:
            command = parse_command(line)
            answers.append(pull_request.carry_out(command))
            verbs.append(command.verb)
        except CommandError as error:
            answers.append(str(error))
            reaction = CONFUSED
        except ForgeError as error:
            refusal = code(str(error), limit=600)
            answers.append(f"GitHub refused: {refusal}")
            reaction = CONFUSED
    if len(lines) > 1:
        answered = zip(lines, answers, strict=True)
        answers = [f"- {code(line)}: {answer}" for line, answer in answered]
    answer = "\n".join(answers)
    if not is_label:
        repository.react(comment.comment_id, reaction)
    reply(
        repository=repository,
        number=comment.number,
        key=f"answer {comment.comment_id}",
        run=request.run,
        text=answer,
    )
    return CommandReply(
        verbs=tuple(verbs),
        reaction=reaction,
        line=answer,
        requests=tuple(pull_request.requests),
    )


def reply(
    repository: Forge,
    number: int,
    key: str,
    run: ActionsRun,
    text: str,
) -> None:
    """Leave one comment with that key on a pull request."""
    post_comment(
        repository=repository,
        number=number,
        body=compose(f"<!-- roofwatch:{key} -->", CommentState(order=run.order), text),
    )


def describe(request: RequestedMeasurement, run: ActionsRun) -> str:
    """Write which commit is measured where, with a link to the run, as Markdown."""
    where = ""
    if request.runner:
        where = f" on {code(request.runner)}"
    link = ""
    if run.url:
        link = f" ([run]({run.url}))"
    commit = code(request.head[:8])
    return f"{commit}{where}{link}"


class _PullRequest:
    """The pull request of a comment, on which its commands are carried out."""

    def __init__(
        self,
        repository: GitHubRepository,
        request: CommandRequest,
        name: str,
        accept_by: AcceptBy,
        tell_service: TellService | None,
    ) -> None:
        self._repository = repository
        self._request = request
        self._name = name
        self._accept_by = accept_by
        self._tell_service = tell_service
        self._number = request.comment.number
        self._branch, self._head_sha = repository.branch_and_head(self._number)
        self.requests: list[RequestedMeasurement] = []

    def carry_out(self, command: Command) -> str:
        """Carry out a command; return the answer as Markdown."""
        match command.verb:
            case Verb.ACCEPT:
                return self._accept(command)
            case Verb.RERUN:
                return self._rerun()
            case Verb.RUN:
                return self._request_measurement(
                    command=command,
                    head_sha=self._reviewed(command),
                    series="",
                )
            case Verb.BISECT:
                head_sha = self._reviewed(command)
                return self._request_measurement(command, head_sha, self._series(command.rest))

    def _accept(self, command: Command) -> str:
        """Store an acceptance in the report, its check and the service."""
        if self._request.labelled_sha is not None:
            raise CommandError(f"A label cannot accept: write `{COMMAND_PREFIX} accept <reason>`.")
        ours, findings = self._reported()
        login = self._request.comment.login
        refusal = why_may_not_accept(
            self._repository,
            self._number,
            login,
            self._accept_by,
        )
        if refusal is not None:
            raise CommandError(f"Not accepted: {refusal}.")
        if findings.wrong_count and not command.wrong_results:
            results = count_of(findings.wrong_count, "wrong result")
            raise CommandError(
                f"Not accepted: the report has {results}. If that is meant: "
                f"`{COMMAND_PREFIX} accept {WRONG_RESULT} <reason>`."
            )
        head_sha = self._head_sha
        # the person has not seen what the newer commit does
        if findings.head_sha != head_sha:
            raise CommandError(
                f"The report is of {code(findings.head_sha[:8])}, and the branch is at "
                f"{code(head_sha[:8])} now: "
                "wait for the report of that commit."
            )
        acceptance = Acceptance(
            comment_id=self._request.comment.comment_id,
            most=findings.most,
            grain=findings.grain,
            wrong_results=command.wrong_results,
        )
        sentence = accepted_by(self._request.comment, command.rest)
        if not self._repository.edit_comment(
            ours,
            with_acceptance(ours.body, acceptance, sentence),
        ):
            raise CommandError("The report was deleted meanwhile; nothing was accepted.")
        newest = self._newest_check_run()
        # a check that passed meanwhile stays as it is
        if newest is not None and newest.conclusion == Conclusion.FAILURE:
            check = CheckRun(
                conclusion=Conclusion.FAILURE,
                title=newest.title,
                summary=newest.summary,
            ).accepted(sentence)
            update = next(check.requests(newest.url))
            self._repository.update_check_run(newest.check_run_id, update)
        answer = (
            f"Accepted {sentence}. It holds until something else is found, or this command is "
            f"deleted."
        )
        if self._tell_service is not None and findings.project:
            comment = self._request.comment
            accepted = to_service(
                repository=self._repository,
                comment=comment,
                reason=command.rest,
                acceptance=acceptance,
                findings=findings,
            )
            # the service comes last: the pull request is what counts
            try:
                self._tell_service(findings.project, accepted)
            except ForgeError as error:
                refusal = code(str(error), limit=600)
                answer += f" The service was not told: {refusal}."
        return answer

    def _rerun(self) -> str:
        """Run the job of the newest report again."""
        head_sha = self._head_sha
        newest = self._newest_check_run()
        if newest is None or newest.order is None:
            raise CommandError(
                f"{code(head_sha[:8])} was not measured yet, so there is nothing to run again."
            )
        # a second job would measure beside the first
        if not newest.is_completed:
            raise CommandError("The measurement is still running.")
        self._repository.run_again(newest.order.run_id)
        again = RunOrder(newest.order.run_id, newest.order.attempt + 1)
        self._repository.conclude(
            head_sha,
            self._name,
            again,
            BEGUN,
            newest.url,
        )
        commit = code(head_sha[:8])
        return f"{commit} is being measured again; the report will be updated."

    def _reviewed(self, command: Command) -> str:
        """Return the commit that the author of the command has seen: the one that the command
        names, or that of a review of theirs. A branch may move between looking and writing.
        """
        head_sha = self._head_sha
        if self._request.labelled_sha is not None:
            head_sha = self._request.labelled_sha
        if command.commit and not head_sha.startswith(command.commit):
            raise CommandError(
                f"The branch is at {code(head_sha[:8])}, not at {code(command.commit[:8])}: review "
                f"that commit."
            )
        login = self._request.comment.login
        # a review of this commit says that its code was read
        if command.commit or head_sha in self._repository.reviewed_commits(self._number, login):
            return head_sha
        example = f"{COMMAND_PREFIX} {command.naming(head_sha[:8])}"
        raise CommandError(
            "The runner executes the code of the pull request, so name the commit that you "
            f"reviewed: {code(example, limit=400)}. A review that you "
            "submitted on that commit will do too."
        )

    def _request_measurement(
        self,
        command: Command,
        head_sha: str,
        series: str,
    ) -> str:
        """Ask another job to measure, and say what will happen."""
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
        activity = "Measuring"
        if series:
            activity = f"Searching for the commit that changed {code(series)}, up to"
        return (
            f"{activity} {describe(request, self._request.run)}. The result will be a reply here."
        )

    def _series(self, named: str) -> str:
        """The series to bisect: the one that is named, else the worst of the report."""
        series = "/".join(named.split())
        if series:
            return series
        _, findings = self._reported()
        if findings.worst is None:
            raise CommandError("No time regressed here: name a case and an implementation.")
        return "/".join(findings.worst)

    def _reported(self) -> tuple[Comment, Findings]:
        """Our report and the findings that it has; refused without any."""
        ours = find_report(self._repository, self._number, self._name)
        findings = None
        if ours is not None:
            findings = read_state(ours.body).findings
        if ours is None or findings is None:
            raise CommandError("No regression is reported on this pull request.")
        return ours, findings

    def _newest_check_run(self) -> FoundCheckRun | None:
        """The check-run of the newest report of this commit."""
        check_runs = self._repository.check_runs(self._head_sha, self._name)
        ours = [check_run for check_run in check_runs if check_run.order is not None]
        return max(ours, key=_recency, default=None)


def _recency(check_run: FoundCheckRun) -> tuple[RunOrder, int]:
    """Sort key: a later run is newer, then a later check-run."""
    assert check_run.order is not None, "it is one of ours"
    return check_run.order, check_run.check_run_id
