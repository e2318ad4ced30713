"""Alerts and owners as the settings have them: the rules, the secrets that they name, and CODEOWNERS."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from roofwatch.ci.alerts.ownership import PLACES, CodeOwners, Ownership, parse_codeowners
from roofwatch.ci.alerts.rules import AlertRules, parse_rules
from roofwatch.ci.errors import AlertError, GitHubError
from roofwatch.db.alerts.values import Alert, AlertEvent, AlertState, Delivery, DeliveryState, Message, Severity
from roofwatch.settings import Settings

# Clients of GitHub and chat services load slowly, and the dashboard needs neither.
if TYPE_CHECKING:
    from roofwatch.ci.alerts.delivery import AlertSetup, Sender

_GITHUB = "https://api.github.com"


def configured_alerts(settings: Settings) -> AlertSetup | None:
    """The alerts of the settings; None if there are no rules.

    Raises:
        AlertError: the rules cannot be read.
    """
    return None if settings.alert_rules is None else read_alerts(settings.alert_rules, settings)


def configured_ownership(settings: Settings) -> Ownership:
    """The owners in the settings, without the kernels' source files; nobody if there are no rules.

    Raises:
        AlertError: the rules or CODEOWNERS cannot be read.
    """
    if settings.alert_rules is None:
        return Ownership()
    rules = _read_rules(settings.alert_rules)
    return Ownership(rules.owners, _read_codeowners(rules, settings.alert_rules.parent))


def read_alerts(path: Path | None, settings: Settings) -> AlertSetup:
    """Read rules, and open the channels that they name. One that cannot be used is a fault, and holds no other.

    Args:
        path: Of the file; None for the one of the settings.
        settings: All others.

    Raises:
        AlertError: there is no file, or it cannot be used; the message says where in it.
    """
    from roofwatch.ci.alerts.delivery import AlertSetup
    from roofwatch.ci.alerts.evaluation import AlertPlan

    chosen = path or settings.alert_rules
    if chosen is None:
        raise AlertError("no alert rules: set alert_rules to a file; docs/how-to/alerts.md has an example")
    rules = _read_rules(chosen)
    channels = _open_channels(rules, chosen.parent)
    faults = [f"channel {name!r}: {why}" for name, why in channels.items() if isinstance(why, str)]
    codeowners = None
    try:
        codeowners = _read_codeowners(rules, chosen.parent)
    except AlertError as error:
        faults.append(str(error))
    return AlertSetup(AlertPlan(rules, codeowners, settings.dashboard_url), channels, tuple(faults))


def trial_delivery(channel: str) -> Delivery:
    """A message that says that it is a test."""
    now, message = datetime.now(UTC), Message(title=f"a test of the channel {channel}: nothing is wrong")
    alert = Alert("roofwatch", "test", "test", Severity.INFO, AlertState.FIRING, 1, message, now)
    return Delivery(
        delivery_id=0,
        key=uuid4(),
        channel=channel,
        event=AlertEvent.FIRED,
        episode=1,
        alert=alert,
        message=message,
        state=DeliveryState.SENDING,
        attempt_count=1,
        attempt_id=None,
        is_uncertain=False,
        created_at=now,
        next_attempt_at=now,
        sent_at=None,
        error=None,
    )


def _open_channels(rules: AlertRules, folder: Path) -> dict[str, Sender | str]:
    from roofwatch.ci.alerts.channels import Secrets, open_channel

    secrets = Secrets(variable=os.environ.get, file=lambda name: _text_of(folder / name))
    channels: dict[str, Sender | str] = {}
    for name, channel in rules.channels.items():
        try:
            channels[name] = open_channel(channel, secrets, api_url=_api_url())
        except AlertError as error:
            channels[name] = str(error)
    return channels


def _read_rules(path: Path) -> AlertRules:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise AlertError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None
    try:
        return parse_rules(text)
    except AlertError as error:
        raise AlertError(f"{path}: {error}") from None


def _read_codeowners(rules: AlertRules, folder: Path) -> CodeOwners | None:
    """The CODEOWNERS that rules name: a file or a checkout, from the folder of the rules, or a repository on GitHub."""
    if rules.codeowners is not None:
        place = folder / rules.codeowners
        named = str(place)
        candidates = [place / each for each in PLACES] if place.is_dir() else [place]
        text = next((text for each in candidates if (text := _text_of(each)) is not None), None)
    elif rules.codeowners_repository is not None:
        from roofwatch.ci.github.client import GitHubRepository

        named = rules.codeowners_repository
        try:
            repository = GitHubRepository(_api_url(), named, os.environ.get("GITHUB_TOKEN", ""))
            text = next((text for each in PLACES if (text := repository.read_file(each)) is not None), None)
        except GitHubError as error:
            raise AlertError(f"CODEOWNERS of {named}: {error}") from None
    else:
        return None
    if text is None:
        raise AlertError(f"CODEOWNERS of {named}: not there; it is looked for at {', '.join(PLACES)}")
    return parse_codeowners(text)


def _api_url() -> str:
    """Of GitHub, or of the server that a job runs on."""
    return os.environ.get("GITHUB_API_URL") or _GITHUB


def _text_of(path: Path) -> str | None:
    """None if it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None
