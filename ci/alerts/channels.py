"""Channels of alerts: chat services by apprise, e-mail, webhooks and GitHub issues.

A message whose sender dies is sent again with the same key. What prevents duplicates: GitHub is searched for a hidden
marker; mail has the same Message-ID; webhooks have the same Idempotency-Key. Chat services have no such key, so the
second message says that it may be a repetition. Apprise cannot set these keys, so mail and webhooks do not use it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import smtplib
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import parseaddr
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

import apprise

from roofwatch.ci.alerts.delivery import Sender, SendError
from roofwatch.ci.alerts.messages import to_document, to_markdown, to_text, to_title
from roofwatch.ci.alerts.rules import AddressedChannel, Channel, IssueChannel
from roofwatch.ci.errors import AlertError, GitHubError, UncertainError
from roofwatch.ci.github.client import GitHubRepository, Issue
from roofwatch.ci.github.comment import post_comment
from roofwatch.db.alerts.values import AlertEvent, Delivery

_TIMEOUT_S = 30.0
_MAX_WAIT_S = 86_400.0
_MIN_SECRET_LENGTH = 4
"""Shorter parts of an address are words such as `to`."""
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_ISSUE_LABEL = "roofwatch"
"""Of every issue, to find ours among thousands."""
_ISSUE_ATTEMPTS = 4
_log = logging.getLogger("roofwatch.alerts")


@dataclass(frozen=True, repr=False)
class Address:
    """The address of a channel: a secret that no text of ours shows."""

    url: str

    def split(self, schemes: set[str]) -> SplitResult | None:
        """Split it; None unless it has one of these schemes and a host."""
        try:
            parts = urlsplit(self.url)
            is_good = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
        except ValueError:
            return None
        return parts if is_good else None

    def redacted(self, error: BaseException) -> str:
        """Format an error without any part of the address."""
        text = f"{type(error).__name__}: {error}"
        for part in sorted({self.url, *re.split(r"[^\w.-]+", self.url)}, key=len, reverse=True):
            if len(part) >= _MIN_SECRET_LENGTH:
                text = text.replace(part, "***")
        return " ".join(text.split())[:500]


def open_channel(channel: Channel, folder: Path, *, api_url: str) -> Sender:
    """Make a channel ready for use.

    Args:
        channel: The channel in the rules.
        folder: Of the rules, for `url_file`.
        api_url: Of GitHub's REST API.

    Raises:
        AlertError: a secret is missing or not valid; the message has its name, never its value.
    """
    if isinstance(channel, IssueChannel):
        token = os.environ.get(channel.token_env)
        if not token:
            raise AlertError(f"the environment variable {channel.token_env} is not set")
        try:
            return IssueSender(GitHubRepository(api_url, channel.repository, token), channel.labels)
        except GitHubError as error:
            raise AlertError(str(error)) from None
    address = _address_of(channel, folder)
    match channel.kind:
        case "email":
            return EmailSender(address)
        case "webhook":
            return WebhookSender(address)
        case "apprise":
            return AppriseSender(address)


def _address_of(channel: AddressedChannel, folder: Path) -> Address:
    if channel.url_env is not None:
        name, text = f"the environment variable {channel.url_env}", os.environ.get(channel.url_env, "")
    else:
        name, text = f"the file {channel.url_file}", ""
        with contextlib.suppress(OSError):
            text = (folder / str(channel.url_file)).read_text(errors="replace")
    words = text.split()
    if len(words) != 1:
        raise AlertError(f"{name} must contain one address; it {'is missing or empty' if not words else 'has several'}")
    return Address(words[0])


class AppriseSender:
    """Any service that apprise supports."""

    def __init__(self, address: Address) -> None:
        logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)  # its log may show parts of an address
        asset = apprise.AppriseAsset(storage_mode="memory", app_id="roofwatch", app_desc="roofwatch")
        self._service = apprise.Apprise(asset=asset)
        if not self._service.add(address.url):
            raise AlertError("the address has no form that apprise supports")

    def send(self, delivery: Delivery) -> None:
        is_resolved = delivery.event is AlertEvent.RESOLVED
        is_sent = self._service.notify(
            title=to_title(delivery),
            body=to_text(delivery),
            notify_type=apprise.NotifyType.SUCCESS if is_resolved else apprise.NotifyType.FAILURE,
            body_format=apprise.NotifyFormat.TEXT,
        )
        if not is_sent:
            raise SendError("the service refused it or did not answer", is_uncertain=True)


class EmailSender:
    """A mailbox, by `smtps://user:password@host/?from=…&to=…`, or `smtp://` with STARTTLS."""

    def __init__(self, address: Address) -> None:
        parts = address.split({"smtp", "smtps"})
        if parts is None:
            raise AlertError("the address must have the form smtps://user:password@host/?from=…&to=…")
        query = parse_qs(parts.query)
        senders, receivers = query.get("from", []), [one for text in query.get("to", []) for one in text.split(",")]
        if len(senders) != 1 or not receivers or not all("@" in parseaddr(one)[1] for one in (*senders, *receivers)):
            raise AlertError("the address needs one sender in `from` and receivers in `to`, separated by commas")
        self._address, self._parts = address, parts
        self._sender, self._receivers = senders[0], receivers

    def send(self, delivery: Delivery) -> None:
        """Send it; all messages of an episode are one thread."""
        try:
            with self._connect() as server:
                if self._parts.username:
                    server.login(unquote(self._parts.username), unquote(self._parts.password or ""))
                refused = server.send_message(self._message(delivery))
        except (smtplib.SMTPResponseException, smtplib.SMTPRecipientsRefused) as error:
            raise SendError(self._address.redacted(error), is_uncertain=False) from None
        except (OSError, smtplib.SMTPException) as error:
            raise SendError(self._address.redacted(error), is_uncertain=True) from None
        if refused:  # the others have it, so it is not sent again
            _log.warning("message %s: %d of %d receivers refused", delivery.key, len(refused), len(self._receivers))

    def _message(self, delivery: Delivery) -> EmailMessage:
        domain = parseaddr(self._sender)[1].rpartition("@")[2]
        message = EmailMessage(policy=SMTP)
        message["From"], message["To"] = self._sender, ", ".join(self._receivers)
        message["Subject"] = to_title(delivery)
        message["Message-ID"] = f"<{delivery.key}@{domain}>"
        message["References"] = f"<{delivery.alert.alert_id}.{delivery.episode}@{domain}>"
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(to_text(delivery))
        return message

    def _connect(self) -> smtplib.SMTP:
        host, context = self._parts.hostname or "", ssl.create_default_context()
        if self._parts.scheme == "smtps":
            return smtplib.SMTP_SSL(host, self._parts.port or 465, timeout=_TIMEOUT_S, context=context)
        server = smtplib.SMTP(host, self._parts.port or 587, timeout=_TIMEOUT_S)
        if host not in _LOOPBACK:
            server.starttls(context=context)
        return server


class WebhookSender:
    """A receiver of JSON, by its https URL; plain http only on this machine."""

    def __init__(self, address: Address) -> None:
        parts = address.split({"http", "https"})
        if parts is None or (parts.scheme == "http" and parts.hostname not in _LOOPBACK):
            raise AlertError("the address must be an https:// URL")
        self._address = address

    def send(self, delivery: Delivery) -> None:
        """Post it; an answer of 2xx means that it arrived."""
        headers = {"Content-Type": "application/json", "Idempotency-Key": str(delivery.key), "User-Agent": "roofwatch"}
        request = urllib.request.Request(  # noqa: S310  the scheme was checked
            self._address.url, json.dumps(to_document(delivery)).encode(), headers, method="POST"
        )
        try:
            with urllib.request.build_opener(_NoRedirect).open(request, timeout=_TIMEOUT_S) as answer:
                answer.read(1)
        except urllib.error.HTTPError as error:
            asked = error.headers.get("Retry-After") or ""
            wait_s = min(float(asked), _MAX_WAIT_S) if asked.isascii() and asked.isdigit() else 0.0
            error.close()
            raise SendError(f"HTTP {error.code}", is_uncertain=error.code >= 500, wait_s=wait_s) from None
        except (OSError, HTTPException) as error:
            raise SendError(f"no answer: {self._address.redacted(error)}", is_uncertain=True) from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Treats a redirect as an error, since the message is only for the address."""

    def redirect_request(self, *_: Any) -> None:
        return None


class IssueSender:
    """Issues on GitHub: one per episode, opened when the alert fires, then commented on and closed.

    An issue is found by a hidden marker in its first line, if its author belongs to the repository or is a bot.
    """

    def __init__(self, repository: GitHubRepository, labels: tuple[str, ...] = ()) -> None:
        self._repository, self._labels = repository, (_ISSUE_LABEL, *labels)

    def send(self, delivery: Delivery) -> None:
        """Open, comment on or close the issue, unless that is done."""
        try:
            issue = self._find(delivery)
            if issue is None and delivery.event is not AlertEvent.RESOLVED:
                self._open(delivery)
            elif issue is not None and delivery.event is not AlertEvent.FIRED:
                marker = f"<!-- roofwatch:message {delivery.key} -->"
                post_comment(self._repository, issue.number, f"{marker}\n{to_markdown(delivery)}")
                if delivery.event is AlertEvent.RESOLVED and issue.is_open:
                    self._repository.close_issue(issue.number)
        except GitHubError as error:  # the next attempt finds what was done
            raise SendError(str(error), is_uncertain=False) from None

    def _find(self, delivery: Delivery) -> Issue | None:
        """Return the oldest issue of the episode, so that concurrent senders agree."""
        listed = self._repository.list_issues((_ISSUE_LABEL,))
        ours = [one for one in listed if one.is_trusted and one.body.split("\n", 1)[0].rstrip() == _marker(delivery)]
        return min(ours, key=lambda issue: issue.number, default=None)

    def _open(self, delivery: Delivery) -> None:
        """Open the issue; if GitHub did not answer, look for it before trying again."""
        for _ in range(_ISSUE_ATTEMPTS):
            with contextlib.suppress(UncertainError):
                body = f"{_marker(delivery)}\n{to_markdown(delivery)}"
                self._repository.create_issue(to_title(delivery), body, self._labels)
                return
            if self._find(delivery) is not None:
                return
        raise GitHubError(f"GitHub did not confirm an issue in {_ISSUE_ATTEMPTS} attempts")


def _marker(delivery: Delivery) -> str:
    return f"<!-- roofwatch:alert {delivery.alert.alert_id} {delivery.episode} -->"
