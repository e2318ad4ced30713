"""Channels that can be used, made of what the rules say of them and of the secrets that they name."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import apprise

from roofwatch.ci.alerts.issue import tell
from roofwatch.ci.alerts.mail import EmailSender
from roofwatch.ci.alerts.rules import AddressedChannel, Channel
from roofwatch.ci.alerts.sending import Address, Sender, SendError
from roofwatch.ci.alerts.text import Notice, to_text, to_title
from roofwatch.ci.alerts.webhook import WebhookSender
from roofwatch.ci.errors import AlertError, GitHubError
from roofwatch.ci.github.issues import GitHubIssues
from roofwatch.db.alerts.values import AlertEvent

_KINDS = {
    AlertEvent.FIRED: apprise.NotifyType.FAILURE,
    AlertEvent.ESCALATED: apprise.NotifyType.FAILURE,
    AlertEvent.RESOLVED: apprise.NotifyType.SUCCESS,
}


@dataclass(frozen=True)
class Secrets:
    """What channels name: read when they are made, and kept nowhere else."""

    variable: Callable[[str], str | None]
    """Of the environment."""
    file: Callable[[str], str | None]
    """The text of a file; None where there is none."""


def open_channel(channel: Channel, secrets: Secrets, *, api_url: str) -> Sender:
    """A channel that can be used.

    Args:
        channel: As the rules have it.
        secrets: Where its address or its token is.
        api_url: Of GitHub's REST interface.

    Raises:
        AlertError: a secret is not there, or is no address; the message says its name, never what it is.
    """
    if not isinstance(channel, AddressedChannel):
        token = secrets.variable(channel.token_env)
        if not token:
            raise AlertError(f"the environment variable {channel.token_env} is not set")
        try:
            return _IssueSender(GitHubIssues(api_url, channel.repository, token), channel.labels)
        except GitHubError as error:
            raise AlertError(str(error)) from None
    address = _address_of(channel, secrets)
    if channel.kind == "email":
        return EmailSender(address)
    if channel.kind == "webhook":
        return WebhookSender(address)
    return _AppriseSender(address)


def _address_of(channel: AddressedChannel, secrets: Secrets) -> Address:
    if channel.url_env is not None:
        named, text = f"the environment variable {channel.url_env}", secrets.variable(channel.url_env)
    else:
        named, text = f"the file {channel.url_file}", secrets.file(channel.url_file or "")
    if text is None or not text.strip():
        raise AlertError(f"{named} with its address is not there, or is empty")
    if len(text.split()) != 1:
        raise AlertError(f"{named} holds more than one address")
    return Address(text.strip())


class _AppriseSender:
    """Any service that apprise knows."""

    def __init__(self, address: Address) -> None:
        # its own lines may say parts of an address
        logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)
        asset = apprise.AppriseAsset(storage_mode="memory", app_id="roofwatch", app_desc="roofwatch")
        self._service = apprise.Apprise(asset=asset)
        if not self._service.add(address.url):
            raise AlertError("apprise knows no service of the form of its address")

    def send(self, notice: Notice, key: str) -> None:
        """Send it; the service cannot be told its key."""
        del key
        is_sent = self._service.notify(
            title=to_title(notice),
            body=to_text(notice),
            notify_type=_KINDS[notice.event],
            body_format=apprise.NotifyFormat.TEXT,
        )
        if not is_sent:
            raise SendError("the service did not take it, or gave no answer", is_uncertain=True)


class _IssueSender:
    def __init__(self, issues: GitHubIssues, labels: Sequence[str]) -> None:
        self._issues, self._labels = issues, labels

    def send(self, notice: Notice, key: str) -> None:
        """Open, comment on or close its issue, unless that is done."""
        try:
            tell(self._issues, notice, key, self._labels)
        except GitHubError as error:
            # whatever was done is found the next time
            raise SendError(str(error), is_uncertain=False) from None
