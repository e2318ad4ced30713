"""Channels that alerts are sent through: chat services by apprise, e-mail, webhooks and GitHub issues.

A sender may die between sending and marking it as sent, and then the message is sent again with the same key. By kind
of channel, this keeps it from arriving twice:

- *github*: GitHub is asked before anything is written, and every text has a hidden marker;
- *email*: the Message-ID is made of the key, by which mail systems drop the second;
- *webhook*: the header `Idempotency-Key` is the key, by which the receiver drops the second;
- *apprise*: chat services take no key and cannot be asked. The second message says that it may have been said before.

E-mail and webhooks do not go through apprise, which cannot set `Message-ID`, `References` and `Idempotency-Key`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import smtplib
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import parseaddr
from http.client import HTTPException
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

import apprise

from roofwatch.ci.alerts.delivery import Sender, SendError
from roofwatch.ci.alerts.messages import to_document, to_html, to_markdown, to_text, to_title
from roofwatch.ci.alerts.rules import AddressedChannel, Channel, IssueChannel
from roofwatch.ci.errors import AlertError, GitHubError
from roofwatch.ci.github.client import GitHubRepository, Issue, UncertainError
from roofwatch.ci.github.posting import post_comment
from roofwatch.db.alerts.values import AlertEvent, Delivery

_TIMEOUT_S = 30.0
_MAX_WAIT_S = 86_400.0
_HIDDEN_LENGTH = 4
"""Shorter parts of an address are words such as `to`: hiding these would only make errors unreadable."""
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_ISSUE_LABEL = "roofwatch"
"""Of every issue, so that ours are found among thousands."""
_ISSUE_ATTEMPTS = 4
_log = logging.getLogger("roofwatch.alerts")


@dataclass(frozen=True)
class Secrets:
    """Reads what channels name when they are opened."""

    variable: Callable[[str], str | None]
    """Of the environment."""
    file: Callable[[str], str | None]
    """The text of a file; None if there is none."""


@dataclass(frozen=True, repr=False)
class Address:
    """Where a channel is: a secret, which no text of ours shows."""

    url: str

    def split(self, schemes: set[str]) -> SplitResult | None:
        """Its parts; None if it is no address with one of these schemes and a host."""
        try:
            parts = urlsplit(self.url)
            is_good = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
        except ValueError:
            return None
        return parts if is_good else None

    def redacted(self, error: BaseException) -> str:
        """An error in words, without any part of the address but short words."""
        text = f"{type(error).__name__}: {error}"
        parts = sorted(set(re.split(r"[^\w.-]+", self.url)), key=len, reverse=True)
        for part in (self.url, *parts):
            if len(part) >= _HIDDEN_LENGTH:
                text = text.replace(part, "***")
        return " ".join(text.split())[:500]


def open_channel(channel: Channel, secrets: Secrets, *, api_url: str) -> Sender:
    """Make a channel ready for use.

    Args:
        channel: As the rules have it.
        secrets: Where its address or its token is.
        api_url: Of GitHub's REST API.

    Raises:
        AlertError: a secret is missing, or is no address; the message has its name, never its value.
    """
    if isinstance(channel, IssueChannel):
        token = secrets.variable(channel.token_env)
        if not token:
            raise AlertError(f"the environment variable {channel.token_env} is not set")
        try:
            return IssueSender(GitHubRepository(api_url, channel.repository, token), channel.labels)
        except GitHubError as error:
            raise AlertError(str(error)) from None
    senders: dict[str, Callable[[Address], Sender]] = {
        "email": EmailSender,
        "webhook": WebhookSender,
        "apprise": AppriseSender,
    }
    return senders[channel.kind](_address_of(channel, secrets))


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


class AppriseSender:
    """Any service that apprise knows."""

    def __init__(self, address: Address) -> None:
        # its own log may show parts of an address
        logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)
        asset = apprise.AppriseAsset(storage_mode="memory", app_id="roofwatch", app_desc="roofwatch")
        self._service = apprise.Apprise(asset=asset)
        if not self._service.add(address.url):
            raise AlertError("apprise knows no service of the form of its address")

    def send(self, delivery: Delivery) -> None:
        is_over = delivery.event is AlertEvent.RESOLVED
        is_sent = self._service.notify(
            title=to_title(delivery),
            body=to_text(delivery),
            notify_type=apprise.NotifyType.SUCCESS if is_over else apprise.NotifyType.FAILURE,
            body_format=apprise.NotifyFormat.TEXT,
        )
        if not is_sent:
            raise SendError("the service did not take it, or gave no answer", is_uncertain=True)


class EmailSender:
    """A mailbox, by `smtps://user:password@host/?from=…&to=…`, or `smtp://` with STARTTLS."""

    def __init__(self, address: Address) -> None:
        parts = address.split({"smtp", "smtps"})
        if parts is None:
            raise AlertError("the address is not of the form smtps://user:password@host/?from=…&to=…")
        query = parse_qs(parts.query)
        senders, receivers = query.get("from", []), [one for text in query.get("to", []) for one in text.split(",")]
        if len(senders) != 1 or not receivers or not all("@" in parseaddr(one)[1] for one in (*senders, *receivers)):
            raise AlertError("the address says one sender in `from` and its receivers in `to`, separated by commas")
        self._address, self._parts = address, parts
        self._sender, self._receivers = senders[0], receivers

    def send(self, delivery: Delivery) -> None:
        """Send it. All messages of an episode refer to one thread."""
        try:
            with self._connect() as server:
                if self._parts.username:
                    server.login(unquote(self._parts.username), unquote(self._parts.password or ""))
                refused = server.send_message(self._message(delivery))
        except (
            smtplib.SMTPResponseException,
            smtplib.SMTPRecipientsRefused,
            smtplib.SMTPNotSupportedError,
            ConnectionRefusedError,
            ssl.SSLError,
        ) as error:
            raise SendError(self._address.redacted(error), is_uncertain=False) from None
        except (OSError, smtplib.SMTPException) as error:
            raise SendError(self._address.redacted(error), is_uncertain=True) from None
        if refused:
            # the others have it: sending it again would not help these
            _log.warning(
                "message %s: %d of %d receivers were refused", delivery.key, len(refused), len(self._receivers)
            )

    def _message(self, delivery: Delivery) -> EmailMessage:
        domain = parseaddr(self._sender)[1].rpartition("@")[2]
        message = EmailMessage(policy=SMTP)
        message["From"], message["To"] = self._sender, ", ".join(self._receivers)
        message["Subject"] = to_title(delivery)
        message["Message-ID"] = f"<{delivery.key}@{domain}>"
        message["References"] = f"<{delivery.alert.alert_id}.{delivery.episode}@{domain}>"
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(to_text(delivery))
        message.add_alternative(to_html(delivery), subtype="html")
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
            raise AlertError("the address is no https:// URL; over plain http others would read it")
        self._address = address

    def send(self, delivery: Delivery) -> None:
        """Post it; an answer of 2xx means that it arrived."""
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": str(delivery.key),
            "User-Agent": "roofwatch",
        }
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
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            cause = reason if isinstance(reason, BaseException) else error
            was_refused = isinstance(cause, ConnectionRefusedError)
            raise SendError(f"no answer: {self._address.redacted(cause)}", is_uncertain=not was_refused) from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: the message is for nobody but the address."""

    def redirect_request(self, *_: Any) -> None:
        return None


class IssueSender:
    """Issues on GitHub: one an episode, opened when the alert fires, commented on, closed when it is over.

    An issue is found again by a hidden marker in its first line, so what somebody wrote who died before marking it as
    sent is found. It is ours if its author belongs to the repository or is a bot.
    """

    def __init__(self, repository: GitHubRepository, labels: tuple[str, ...] = ()) -> None:
        self._repository, self._labels = repository, (_ISSUE_LABEL, *labels)

    def send(self, delivery: Delivery) -> None:
        """Open, comment on or close its issue, unless that is done."""
        try:
            issue = self._find(delivery)
            if issue is None and delivery.event is not AlertEvent.RESOLVED:
                self._open(delivery)
            elif issue is not None and delivery.event is not AlertEvent.FIRED:
                body = f"<!-- roofwatch:message {delivery.key} -->\n{to_markdown(delivery)}"
                post_comment(self._repository, issue.number, body)
                if delivery.event is AlertEvent.RESOLVED and issue.is_open:
                    self._repository.close_issue(issue.number)
        except GitHubError as error:
            # whatever was done is found the next time
            raise SendError(str(error), is_uncertain=False) from None

    def _find(self, delivery: Delivery) -> Issue | None:
        """The oldest of an episode: of two that were opened at once, everybody takes the same one."""
        listed = self._repository.list_issues((_ISSUE_LABEL,))
        ours = [one for one in listed if one.is_trusted and one.body.split("\n", 1)[0].rstrip() == _marker(delivery)]
        return min(ours, key=lambda issue: issue.number, default=None)

    def _open(self, delivery: Delivery) -> None:
        """Open it. If it is not known whether that was carried out, look, and only then once more."""
        for _ in range(_ISSUE_ATTEMPTS):
            with contextlib.suppress(UncertainError):
                body = f"{_marker(delivery)}\n{to_markdown(delivery)}"
                self._repository.create_issue(to_title(delivery), body, self._labels)
                return
            if self._find(delivery) is not None:
                return
        raise GitHubError(f"GitHub could not say in {_ISSUE_ATTEMPTS} attempts whether it took an alert")


def _marker(delivery: Delivery) -> str:
    return f"<!-- roofwatch:alert {delivery.alert.alert_id} {delivery.episode} -->"
