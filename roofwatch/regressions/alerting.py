"""Alerts and owners as the settings have them: the rules, their channels, and CODEOWNERS."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from roofwatch.ci.alerts.ownership import PLACES, Ownership, parse_codeowners
from roofwatch.ci.alerts.rules_file import AlertRules, parse_rules
from roofwatch.ci.messages import AlertError
from roofwatch.configuration.settings import Settings
from roofwatch.model.alert import Alert, AlertEvent, AlertState, Delivery, Message, Severity

if (
    TYPE_CHECKING
):  # clients of GitHub and chat services load slowly, and the dashboard needs neither
    from codeowners import CodeOwners

    from roofwatch.ci.alerts.evaluation import AlertSetup, Send


def configured_ownership(settings: Settings) -> Ownership:
    """Read the owners of the settings, without the source files of kernels; empty without rules.

    Raises:
        AlertError: the rules or CODEOWNERS cannot be read.
    """
    if settings.alert_rules is None:
        return Ownership()
    rules = _read_rules(settings.alert_rules)
    return Ownership(rules.owners, _read_codeowners(rules, settings.alert_rules.parent))


def read_alerts(path: Path | None, settings: Settings) -> AlertSetup:
    """Read the rules of a file, else of the settings, and open their channels.

    A channel or CODEOWNERS that cannot be used is a fault of the result.

    Raises:
        AlertError: the rules cannot be read; the message has the place.
    """
    from roofwatch.ci.alerts.channels import MIN_SECRET, open_channel
    from roofwatch.ci.alerts.evaluation import AlertSetup
    from roofwatch.ci.alerts.links import AcknowledgeLinks

    path = path or settings.alert_rules
    if path is None:
        raise AlertError(
            "no alert rules: set alert_rules to a file; docs/how-to/alerts.md has an example"
        )
    rules = _read_rules(path)
    codeowners = None
    api_url = os.environ.get("GITHUB_API_URL") or "https://api.github.com"
    channels: dict[str, Send | str] = {}
    faults = []
    # one broken channel must not silence the others
    for name, channel in rules.channels.items():
        try:
            channels[name] = open_channel(channel, path.parent, api_url=api_url)
        except AlertError as error:
            channels[name] = str(error)
            faults.append(f"channel {name!r}: {error}")
    try:
        codeowners = _read_codeowners(rules, path.parent)
    except AlertError as error:
        faults.append(str(error))
    links = None
    if rules.acknowledge is not None:
        variable = rules.acknowledge.secret_env
        secret = os.environ.get(variable, "")
        # a link with a guessable secret lets anybody acknowledge
        if len(secret) < MIN_SECRET:
            faults.append(
                f"acknowledge: the environment variable {variable} must have {MIN_SECRET} "
                "characters or more"
            )
        else:
            links = AcknowledgeLinks(rules.acknowledge.url, secret)
    return AlertSetup(
        rules=rules,
        codeowners=codeowners,
        dashboard_url=settings.dashboard_url,
        channels=channels,
        faults=tuple(faults),
        links=links,
    )


def trial_delivery(channel: str) -> Delivery:
    now = datetime.now(UTC)
    message = Message(title=f"the channel {channel} works", is_test=True)
    alert = Alert(
        project="roofwatch",
        cause="test",
        rules=("test",),
        severity=Severity.INFO,
        state=AlertState.FIRING,
        episode=1,
        message=message,
        fired_at=now,
    )
    return Delivery(
        alert=alert,
        event=AlertEvent.FIRED,
        channel=channel,
        created_at=now,
        next_attempt_at=now,
    )


def _read_rules(path: Path) -> AlertRules:
    try:
        return parse_rules(path.read_text())
    except (OSError, UnicodeDecodeError, AlertError) as error:
        raise AlertError(f"{path}: {error}") from None


def _read_codeowners(rules: AlertRules, folder: Path) -> CodeOwners | None:
    if rules.codeowners is None:
        return None
    path = folder / rules.codeowners
    if path.is_dir():
        candidates = [path / name for name in PLACES]
    else:
        candidates = [path]
    file = next((candidate for candidate in candidates if candidate.is_file()), None)
    if file is None:
        raise AlertError(f"CODEOWNERS of {rules.codeowners}: not found at {', '.join(PLACES)}")
    return parse_codeowners(file.read_text(errors="replace"))
