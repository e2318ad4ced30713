"""The job that posts a report, and the forge and the service that it may write to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofwatch.ci.forges.commands import TellService
from roofwatch.ci.forges.comment import (
    Forge,
)
from roofwatch.ci.forges.event import TOKEN_VARIABLE, ActionsRun, Job, job_of
from roofwatch.ci.messages import ForgeError
from roofwatch.collector.outbox.http_client import TOKEN_VARIABLE as SERVICE_TOKEN_VARIABLE
from roofwatch.collector.outbox.http_client import HttpClient
from roofwatch.model.acceptance import PullRequestAcceptance
from roofwatch.model.errors import SpoolError

if TYPE_CHECKING:
    from roofwatch.ci.forges.client import GitHubRepository

SERVER_VARIABLE = "ROOFWATCH_SERVER_URL"


def event_of(variables: Mapping[str, str]) -> dict[str, Any]:
    """Read the event that started the job.

    Raises:
        ForgeError: it cannot be read.
    """
    path = variables.get("GITHUB_EVENT_PATH", "")
    # On a machine of one's own there is no event.
    if not path:
        return {}
    try:
        event = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise ForgeError(f"GITHUB_EVENT_PATH: {path}: {error}") from None
    if not isinstance(event, dict):
        return {}
    return event


def job_here(variables: Mapping[str, str]) -> Job:
    """Determine the run, commit and pull request of a job of GitHub Actions or GitLab CI.

    Raises:
        ForgeError: the variables are not those of a job.
    """
    if variables.get("GITLAB_CI"):
        from roofwatch.ci.forges import gitlab

        return gitlab.job_of(variables)
    return job_of(variables, event_of(variables))


def open_forge(job: Job, variables: Mapping[str, str]) -> Forge:
    """Open the repository of a job.

    Raises:
        ForgeError: there is no token.
    """
    if variables.get("GITLAB_CI"):
        from roofwatch.ci.forges.gitlab import GitLabProject

        return GitLabProject(job, variables)
    return open_repository(job.run, variables)


def open_service(variables: Mapping[str, str]) -> TellService | None:
    """Open the service that stores acceptances; None if the job names none.

    Only the job's environment counts: a file of the pull request must not receive the token.
    """
    url = variables.get(SERVER_VARIABLE, "")
    token = variables.get(SERVICE_TOKEN_VARIABLE, "")
    if not url or not token:
        return None
    from roofwatch.store.server import Server

    def tell(project: str, acceptance: PullRequestAcceptance) -> None:
        try:
            Server(HttpClient(url, token)).send_acceptance(project, acceptance)
        except SpoolError as error:
            raise ForgeError(str(error)) from None

    return tell


def open_repository(run: ActionsRun, variables: Mapping[str, str]) -> GitHubRepository:
    """Open the repository of a run with the job's token.

    Raises:
        ForgeError: there is no token.
    """
    from roofwatch.ci.forges.client import GitHubRepository

    token = variables.get(TOKEN_VARIABLE, "").strip()
    if not token:
        raise ForgeError(
            f"{TOKEN_VARIABLE} is not set; give the step `env: {TOKEN_VARIABLE}: ${{{{ "
            f"github.token }}}}`"
        )
    return GitHubRepository(run.api_url, run.repository, token)
