"""Alerts as the settings have them: the rules, the secrets that they name, and who owns what."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from api.alerting import Alerts
from ci.alerts.channels import Secrets, open_channel
from ci.alerts.looking import AlertPlan
from ci.alerts.rules import AlertRules, parse_rules
from ci.alerts.sending import Sender
from ci.alerts.text import Notice
from ci.codeowners import PLACES, CodeOwners, parse_codeowners
from ci.errors import AlertError, GitHubError
from ci.github.issues import GitHubIssues
from db.alerts.values import AlertEvent, Message, Severity
from roofwatch.settings import Settings

_GITHUB = "https://api.github.com"


@dataclass(frozen=True)
class ConfiguredAlerts:
    """What alerts are raised by and sent through, and what of that is amiss."""

    alerts: Alerts
    faults: tuple[str, ...]
    """What cannot be used, each with why."""


def configured_alerts(settings: Settings) -> Alerts | None:
    """The alerts of the settings; None where there are no rules. A channel that cannot be used holds no other.

    Raises:
        AlertError: the rules cannot be read.
    """
    return None if settings.alert_rules is None else read_alerts(settings.alert_rules, settings).alerts


def read_alerts(path: Path | None, settings: Settings) -> ConfiguredAlerts:
    """Read rules, and make ready what they name.

    Args:
        path: Of the file; None for the one of the settings.
        settings: What else holds.

    Raises:
        AlertError: there is no file, or it cannot be used; the message says where in it.
    """
    chosen = path or settings.alert_rules
    if chosen is None:
        raise AlertError("which rules? Name their file in the setting alert_rules; docs/alerts.md has an example")
    rules = _read_rules(chosen)
    channels = _open_channels(rules, chosen.parent)
    faults = [f"channel {name!r}: {why}" for name, why in channels.items() if isinstance(why, str)]
    codeowners = None
    try:
        codeowners = _read_codeowners(rules, chosen.parent)
    except AlertError as error:
        faults.append(str(error))
    return ConfiguredAlerts(Alerts(AlertPlan(rules, codeowners, settings.dashboard_url), channels), tuple(faults))


def trial_notice(channel: str) -> Notice:
    """A message that says that it is a test."""
    return Notice(
        project="roofwatch",
        rule="test",
        severity=Severity.INFO,
        event=AlertEvent.FIRED,
        alert_id="00000000-0000-0000-0000-000000000000",
        episode=1,
        message=Message(title=f"a test of the channel {channel}: nothing is wrong"),
    )


def _read_rules(path: Path) -> AlertRules:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise AlertError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None
    try:
        return parse_rules(text)
    except AlertError as error:
        raise AlertError(f"{path}: {error}") from None


def _open_channels(rules: AlertRules, folder: Path) -> dict[str, Sender | str]:
    secrets = Secrets(variable=os.environ.get, file=lambda name: _text_of(folder / name))
    channels: dict[str, Sender | str] = {}
    for name, channel in rules.channels.items():
        try:
            channels[name] = open_channel(channel, secrets, api_url=_api_url())
        except AlertError as error:
            channels[name] = str(error)
    return channels


def _read_codeowners(rules: AlertRules, folder: Path) -> CodeOwners | None:
    if rules.codeowners is not None:
        place = folder / rules.codeowners
        candidates = [place / each for each in PLACES] if place.is_dir() else [place]
        text = next((text for each in candidates if (text := _text_of(each)) is not None), None)
        named = str(place)
    elif rules.codeowners_repository is not None:
        named = rules.codeowners_repository
        try:
            issues = GitHubIssues(_api_url(), named, os.environ.get("GITHUB_TOKEN", ""))
            text = issues.read_codeowners()
        except GitHubError as error:
            raise AlertError(f"CODEOWNERS of {named}: {error}") from None
    else:
        return None
    if text is None:
        raise AlertError(f"CODEOWNERS of {named}: not there; it is looked for at {', '.join(PLACES)}")
    return parse_codeowners(text)


def _api_url() -> str:
    return os.environ.get("GITHUB_API_URL") or _GITHUB


def _text_of(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None
