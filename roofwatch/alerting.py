"""Alerts as the settings have them: the rules, the secrets that they name, and who owns what."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from roofwatch.api.background import Alerts
from roofwatch.ci.alerts.channels import Secrets, open_channel
from roofwatch.ci.alerts.looking import AlertPlan
from roofwatch.ci.alerts.rules import AlertRules
from roofwatch.ci.alerts.sending import Sender
from roofwatch.ci.alerts.text import Notice
from roofwatch.ci.errors import AlertError
from roofwatch.db.alerts.values import AlertEvent, Message, Severity
from roofwatch.ownership import api_url, read_codeowners, read_rules, text_of
from roofwatch.settings import Settings


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
    rules = read_rules(chosen)
    channels = _open_channels(rules, chosen.parent)
    faults = [f"channel {name!r}: {why}" for name, why in channels.items() if isinstance(why, str)]
    codeowners = None
    try:
        codeowners = read_codeowners(rules, chosen.parent)
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


def _open_channels(rules: AlertRules, folder: Path) -> dict[str, Sender | str]:
    secrets = Secrets(variable=os.environ.get, file=lambda name: text_of(folder / name))
    channels: dict[str, Sender | str] = {}
    for name, channel in rules.channels.items():
        try:
            channels[name] = open_channel(channel, secrets, api_url=api_url())
        except AlertError as error:
            channels[name] = str(error)
    return channels
