"""Who owns kernels, as the files say that alerts are written by: the rules' own table, and CODEOWNERS."""

from __future__ import annotations

import os
from pathlib import Path

from roofwatch.ci.alerts.rules import AlertRules, parse_rules
from roofwatch.ci.errors import AlertError, GitHubError
from roofwatch.ci.report.codeowners import PLACES, CodeOwners, parse_codeowners
from roofwatch.ci.report.owners import Ownership
from roofwatch.settings import Settings

_GITHUB = "https://api.github.com"


def configured_ownership(settings: Settings) -> Ownership:
    """What the settings know of who owns what; nothing where there are no rules. Source files are not known here.

    Raises:
        AlertError: the rules or CODEOWNERS cannot be read.
    """
    if settings.alert_rules is None:
        return Ownership()
    rules = read_rules(settings.alert_rules)
    return Ownership(rules.owners, read_codeowners(rules, settings.alert_rules.parent))


def read_rules(path: Path) -> AlertRules:
    """Read a file of rules.

    Raises:
        AlertError: it cannot be read, or says what cannot be; the message says where in it.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise AlertError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None
    try:
        return parse_rules(text)
    except AlertError as error:
        raise AlertError(f"{path}: {error}") from None


def read_codeowners(rules: AlertRules, folder: Path) -> CodeOwners | None:
    """The CODEOWNERS that rules name: a file or a checkout, from the folder of the rules, or a repository on GitHub.

    Raises:
        AlertError: it is named and not there, or GitHub does not give it.
    """
    if rules.codeowners is not None:
        place = folder / rules.codeowners
        candidates = [place / each for each in PLACES] if place.is_dir() else [place]
        text = next((text for each in candidates if (text := text_of(each)) is not None), None)
        named = str(place)
    elif rules.codeowners_repository is not None:
        # it takes a client of GitHub, which few need
        from roofwatch.ci.github.issues import GitHubIssues

        named = rules.codeowners_repository
        try:
            text = GitHubIssues(api_url(), named, os.environ.get("GITHUB_TOKEN", "")).read_codeowners()
        except GitHubError as error:
            raise AlertError(f"CODEOWNERS of {named}: {error}") from None
    else:
        return None
    if text is None:
        raise AlertError(f"CODEOWNERS of {named}: not there; it is looked for at {', '.join(PLACES)}")
    return parse_codeowners(text)


def api_url() -> str:
    """Of GitHub, or of the server that a job runs on."""
    return os.environ.get("GITHUB_API_URL") or _GITHUB


def text_of(path: Path) -> str | None:
    """None where it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None
