"""The `[check]` and `[accept]` settings of a job, from a place that the change cannot write."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roofwatch.collector.git import run_git
from roofwatch.configuration.settings import Check, Settings, SettingsError, load_settings
from roofwatch.model.claim import AcceptBy, CheckPolicy
from roofwatch.model.errors import GitError

_FILES = ("roofwatch.toml", "pyproject.toml")


def read_policy(
    variables: Mapping[str, str],
    event: Mapping[str, Any],
    *,
    requires: str = "",
    untimed: str = "",
    repository: Path = Path(),
) -> CheckPolicy:
    """Read the policy of a check.

    In a job for a pull or merge request, whose folder the change can write, the file is that of the
    base commit; if the commit is not there, only the environment counts. Elsewhere the file is that
    of the current folder. Records bring no settings.

    Args:
        variables: Environment of the job.
        event: That started the job.
        requires: Of the workflow; takes precedence if not empty.
        untimed: Likewise.
        repository: Where the job runs.

    Raises:
        SettingsError: a setting is unknown or invalid.
    """
    check = _settings_for(variables, event, repository).check
    options = {"requires": requires, "untimed": untimed}
    fields = check.model_dump() | {name: value for name, value in options.items() if value}
    try:
        return Check.model_validate(fields).policy
    except ValueError as error:
        raise SettingsError(f"--requires and --untimed: {error}") from None


def read_accept_by(
    variables: Mapping[str, str],
    event: Mapping[str, Any],
    *,
    accept_by: str = "",
    repository: Path = Path(),
) -> AcceptBy:
    """Read who may accept findings, from where `read_policy` reads the policy.

    Raises:
        SettingsError: a setting is unknown or invalid.
    """
    if not accept_by:
        return _settings_for(variables, event, repository).accept.by
    try:
        return AcceptBy(accept_by)
    except ValueError:
        allowed = ", ".join(AcceptBy)
        raise SettingsError(f"--accept-by {accept_by!r}: choose one of {allowed}") from None


def _settings_for(
    variables: Mapping[str, str],
    event: Mapping[str, Any],
    repository: Path,
) -> Settings:
    base = _base_commit(variables, event)
    if base is None:
        return load_settings(repository)
    return _settings_at(base, repository)


def _base_commit(variables: Mapping[str, str], event: Mapping[str, Any]) -> str | None:
    """Return the commit that the change is to be merged into; None outside a change."""
    pull_request = event.get("pull_request")
    queue = event.get("merge_group")
    if isinstance(pull_request, dict) and isinstance(pull_request.get("base"), dict):
        return str(pull_request["base"].get("sha", ""))
    if isinstance(queue, dict):
        return str(queue.get("base_sha", ""))
    return variables.get("CI_MERGE_REQUEST_DIFF_BASE_SHA")


def _settings_at(commit: str, repository: Path) -> Settings:
    """Read the settings of a commit, or of the environment alone."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in _FILES:
            try:
                text = run_git(repository, "show", "--end-of-options", f"{commit}:{file}")
            except GitError:  # the commit is not here, or has no such file
                continue
            (folder / file).write_text(text)
        if not any((folder / file).exists() for file in _FILES):
            (folder / _FILES[0]).write_text("")  # ends the search in parent folders
        return load_settings(folder)
