"""Issues of a watched branch: which repository, and who owns a kernel."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from roofwatch.ci.alerts.ownership import PLACES, Ownership, parse_codeowners
from roofwatch.ci.forges.client import GitHubRepository
from roofwatch.ci.forges.event import TOKEN_VARIABLE
from roofwatch.ci.forges.regression_issues import synchronise
from roofwatch.ci.messages import ForgeError
from roofwatch.ci.watching.issues import plan_issues
from roofwatch.collector.git import find_repository
from roofwatch.watch.runner import Watch


def repository_of_job() -> GitHubRepository:
    """Return the repository that the environment names, as in a job of GitHub Actions.

    Raises:
        ForgeError: a variable is missing.
    """
    token = os.environ.get(TOKEN_VARIABLE)
    name = os.environ.get("GITHUB_REPOSITORY")
    if not token or not name:
        raise ForgeError(
            f"--issues needs {TOKEN_VARIABLE}, with the permission to write issues, and "
            "GITHUB_REPOSITORY, such as owner/kernels"
        )
    api_url = os.environ.get("GITHUB_API_URL") or "https://api.github.com"
    return GitHubRepository(api_url, name, token)


def post_issues(
    watched: Watch,
    repository: GitHubRepository,
    labels: Sequence[str],
) -> Iterator[str]:
    """Open, comment on and close the issues of a watched branch; yields what was done.

    Raises:
        ForgeError: GitHub refuses.
    """
    ownership = Ownership(
        codeowners=parse_codeowners(_codeowners(watched.branch.path)),
        source_paths=watched.source_paths(),
    )
    issues = plan_issues(watched.ledger.sent_news, ownership.owners_of)
    yield from synchronise(repository, issues, labels)


def _codeowners(suite: Path | None) -> str:
    root = find_repository(suite or Path.cwd())
    if root is None:
        return ""
    for relative_path in PLACES:
        if (root / relative_path).is_file():
            return (root / relative_path).read_text(errors="replace")
    return ""
