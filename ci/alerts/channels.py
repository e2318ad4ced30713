"""Channels of alerts: webhooks, GitHub issues, and every service that apprise supports, such as
chat and e-mail.

Texts may come from a record or a repository, so they are untrusted. In plain text they become
printable lines without mentions, links or tags; in Markdown they are code spans; in the JSON of a
webhook they are data.
"""

import contextlib
import hashlib
import hmac
import json
import logging
import os
import re
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import apprise
import httpx

from roofwatch.ci.alerts.evaluation import Send, SendError
from roofwatch.ci.alerts.ownership import OWNER
from roofwatch.ci.alerts.rules_file import AddressedChannel, Channel, IssueChannel
from roofwatch.ci.forges.client import GitHubRepository, Issue
from roofwatch.ci.forges.comment import post_comment
from roofwatch.ci.messages import AlertError, ForgeError, code, may_carry_secrets, plain
from roofwatch.model.alert import AlertEvent, AlertState, Delivery, ReportedValue
from roofwatch.model.files import JsonObject
from roofwatch.model.metrics import metric

# named and computed as GitHub's own header, so existing receivers verify it
SIGNATURE = "X-Roofwatch-Signature-256"
# a shorter key can be guessed from one message
MIN_SECRET = 16
_TIMEOUT_S = 30.0
_ISSUE_LABEL = "roofwatch"
"""Every issue has it, so a search for ours is short."""
_MAX_TITLE = 150
"""With the project and the prefix it fits into the 256 characters of an issue's title."""
_MAX_FACT = 500
# more make a chat message unreadable
_MAX_CHANGES = 6
# characters by which chats recognise mentions, links and markup
_HARMLESS = str.maketrans(
    {
        "@": "＠",
        "<": "‹",
        ">": "›",
        "`": "'",
        "*": "∗",
        "|": "¦",
        "[": "(",
        "]": ")",
    }
)
# chats make a link of these even in plain text
_SCHEME = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*):(?=//)|\bwww\.")
_PREFIXES = {
    AlertEvent.FIRED: "",
    AlertEvent.REMINDED: "still firing: ",
    AlertEvent.ESCALATED: "not acknowledged: ",
    AlertEvent.RESOLVED: "resolved: ",
}


def open_channel(
    channel: Channel,
    folder: Path,
    *,
    api_url: str,
) -> Send:
    """Make a channel ready for use; its `url_file` is relative to the folder of the rules.

    Raises:
        AlertError: a secret is missing or not valid; the message has its name, never its value.
    """
    if isinstance(channel, IssueChannel):
        token = os.environ.get(channel.token_env)
        # said now and not with the first alert
        if not token:
            raise AlertError(f"the environment variable {channel.token_env} is not set")
        return open_issues(
            api_url=api_url,
            name=channel.repository,
            token=token,
            labels=channel.labels,
        )
    url = _read_address(channel, folder)
    if channel.kind == "apprise":
        return open_apprise(url)
    if channel.secret_env is None:
        return open_webhook(url)
    secret = os.environ.get(channel.secret_env, "")
    # a short secret could be guessed from a signed message
    if len(secret) < MIN_SECRET:
        raise AlertError(
            f"the environment variable {channel.secret_env} must have {MIN_SECRET} characters or "
            f"more"
        )
    return open_webhook(url, secret)


def _read_address(channel: AddressedChannel, folder: Path) -> str:
    """Read a secret address from where the rules say that it is."""
    text = ""
    if channel.url_env is not None:
        source = f"the environment variable {channel.url_env}"
        text = os.environ.get(channel.url_env, "")
    else:
        source = f"the file {channel.url_file}"
        with contextlib.suppress(OSError):
            text = (folder / str(channel.url_file)).read_text(errors="replace")
    words = text.split()
    if not words:
        raise AlertError(f"{source} must contain one address; it is missing or empty")
    # a second line may be the rest of a broken one
    if len(words) > 1:
        raise AlertError(f"{source} must contain one address; it has several")
    return words[0]


def open_apprise(url: str) -> Send:
    """Use any service that apprise supports; the text says when it may be a repetition."""
    # its log may show parts of an address
    logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)
    asset = apprise.AppriseAsset(
        storage_mode="memory",
        app_id="roofwatch",
        app_desc="roofwatch",
    )
    service = apprise.Apprise(asset=asset)
    if not service.add(url):
        raise AlertError("the address has no form that apprise supports")

    def send(delivery: Delivery) -> None:
        notify_type = apprise.NotifyType.FAILURE
        if delivery.event is AlertEvent.RESOLVED:
            notify_type = apprise.NotifyType.SUCCESS
        is_sent = service.notify(
            title=to_title(delivery),
            body=to_text(delivery),
            notify_type=notify_type,
            body_format=apprise.NotifyFormat.TEXT,
        )
        # some services answer late, so the message may have arrived
        if not is_sent:
            raise SendError("the service refused it or did not answer", is_uncertain=True)

    return send


def open_webhook(url: str, secret: str | None = None) -> Send:
    """Use a receiver of JSON, by its https URL; plain http only on this machine.

    With a secret, the header `X-Roofwatch-Signature-256` has the HMAC-SHA256 of the body, as
    GitHub's webhooks do.
    """
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs every URL
    if not may_carry_secrets(url):
        raise AlertError("the address must be an https:// URL")

    def send(delivery: Delivery) -> None:
        body = json.dumps(to_document(delivery)).encode()
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": str(delivery.key),
            "User-Agent": "roofwatch",
        }
        if secret is not None:
            signature = hmac.new(secret.encode(), body, hashlib.sha256)
            headers[SIGNATURE] = f"sha256={signature.hexdigest()}"
        try:
            answer = httpx.post(
                url,
                content=body,
                headers=headers,
                timeout=_TIMEOUT_S,
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:  # its text may have the address
            raise SendError(f"no answer: {type(error).__name__}", is_uncertain=True) from None
        if not answer.is_success:
            raise SendError(
                f"HTTP {answer.status_code}",
                is_uncertain=answer.is_server_error,
                retry_after=_retry_after(answer),
            )

    return send


def _retry_after(answer: httpx.Response) -> timedelta:
    """How long the receiver wants us to wait, at most a day."""
    retry_after = answer.headers.get("Retry-After", "")
    # a date is not supported: the usual wait applies
    if answer.status_code not in {429, 503} or not retry_after.isdecimal():
        return timedelta()
    return timedelta(seconds=min(float(retry_after), 86_400.0))


def open_issues(
    api_url: str,
    name: str,
    token: str,
    labels: tuple[str, ...],
) -> Send:
    """Use issues on GitHub: one per episode, opened when the alert fires, then commented on and
    closed.

    An issue is found by a hidden marker in its first line, if its author belongs to the repository
    or is a bot.
    """
    try:
        repository = GitHubRepository(
            api_url,
            name,
            token,
        )
    except ForgeError as error:
        raise AlertError(str(error)) from None

    def find_issue(marker: str) -> Issue | None:
        # a stranger may write our marker into an issue of theirs
        trusted = [issue for issue in repository.list_issues(_ISSUE_LABEL) if issue.is_trusted]
        matching = [issue for issue in trusted if _first_line(issue.body) == marker]
        return min(
            matching,
            key=lambda issue: issue.number,
            default=None,
        )

    def send(delivery: Delivery) -> None:
        try:
            issue = find_issue(_marker(delivery))
            if issue is None and delivery.event is not AlertEvent.RESOLVED:
                body = f"{_marker(delivery)}\n{to_markdown(delivery)}"
                repository.create_issue(to_title(delivery), body, (_ISSUE_LABEL, *labels))
            # an issue of a message that fires is there already: this is a repetition
            elif issue is not None and delivery.event is not AlertEvent.FIRED:
                marker = f"<!-- roofwatch:message {delivery.key} -->"
                post_comment(repository, issue.number, f"{marker}\n{to_markdown(delivery)}")
                if delivery.event is AlertEvent.RESOLVED and issue.is_open:
                    repository.close_issue(issue.number)
        except ForgeError as error:  # the next attempt finds what was done
            raise SendError(str(error), is_uncertain=False) from None

    return send


def _first_line(text: str) -> str:
    return text.partition("\n")[0].rstrip()


def _marker(delivery: Delivery) -> str:
    return f"<!-- roofwatch:alert {delivery.alert.alert_id} {delivery.alert.episode} -->"


# --- messages


def to_title(delivery: Delivery) -> str:
    project = _inert(delivery.alert.project, 80)
    title = _inert(delivery.alert.message.title, _MAX_TITLE)
    prefix = _PREFIXES[delivery.event]
    if delivery.alert.message.is_test:
        return f"[roofwatch] TEST, nothing happened: {title}"
    return f"[{project}] {delivery.alert.severity}: {prefix}{title}"


def to_text(delivery: Delivery) -> str:
    """Write lines of plain text, without the title."""
    facts = _facts(delivery)
    lines = [f"{name}: {_inert(text, _MAX_FACT)}" for name, text in facts]
    links = delivery.alert.message.links
    lines += [f"{link.name}: {link.url}" for link in links]
    if delivery.is_uncertain:
        lines.append("This may be a repetition: it is unknown whether an earlier attempt arrived.")
    return "\n".join(lines)


def to_markdown(delivery: Delivery) -> str:
    """Write the body of an issue or a comment on GitHub; only valid owners are mentioned."""
    message = delivery.alert.message
    title = code(message.title, limit=_MAX_FACT)
    prefix = _PREFIXES[delivery.event].capitalize()
    if prefix:
        title = f"**{prefix}**{title}"
    lines = [title, ""]
    lines += [f"- {name}: {code(text, limit=_MAX_FACT)}" for name, text in _facts(delivery)]
    # a name that GitHub does not know would be plain text
    mentioned = [owner for owner in message.owners if OWNER.fullmatch(owner)]
    if mentioned:
        lines += ["", " ".join(mentioned)]
    if message.links:
        links = [f"[{link.name}]({link.url})" for link in message.links]
        lines += ["", " · ".join(links)]
    return "\n".join(lines)


def to_document(delivery: Delivery) -> JsonObject:
    alert = delivery.alert
    # only alerts of regressions have one
    regression_id = None
    if alert.regression_id is not None:
        regression_id = str(alert.regression_id)
    return {
        "version": 1,
        "key": str(delivery.key),
        "event": delivery.event,
        "alert_id": str(alert.alert_id),
        "episode": alert.episode,
        "project": alert.project,
        "rules": alert.rules,
        "severity": alert.severity,
        "regression_id": regression_id,
        "fired_at": alert.fired_at.isoformat(),
        **asdict(delivery.alert.message),
    }


def _facts(delivery: Delivery) -> list[tuple[str, str]]:
    """Name and text of each line of a message."""
    alert = delivery.alert
    message = alert.message
    if message.is_test:
        return [("To do", "nothing; this message shows that the channel works")]
    facts = [("Device", ", ".join(message.devices))]
    facts += [("Change", _change_text(change)) for change in message.changes[:_MAX_CHANGES]]
    facts += [(fact.name, fact.text) for fact in message.facts]
    facts += [
        ("Owner", ", ".join(message.owners)),
        ("Rule", f"{', '.join(alert.rules)} ({alert.severity})"),
        ("Alert", f"{alert.alert_id}, episode {alert.episode}"),
    ]
    if alert.state is AlertState.FIRING:
        command = f"roofwatch alert acknowledge {alert.alert_id} --person NAME --reason REASON"
        facts.append(("Acknowledge", command))
    # a fact without text is not known
    return [(name, text) for name, text in facts if text]


def _change_text(change: ReportedValue) -> str:
    """Write the values with their units: `gemm/… · triton: compute rate 612 TFLOP/s to 562 TFLOP/s
    (-8.2%)`.
    """
    definition = metric(change.metric)
    base = "failed"
    if change.before is not None:
        base = definition.format(change.before)
    head = "failed"
    if change.after is not None:
        head = definition.format(change.after)
    subject = f"{change.case_id} · {change.implementation}"
    text = f"{subject}: {definition.title} {base} to {head}"
    # a limit has no value before
    if change.is_limit:
        text = f"{subject}: {definition.title} is {head}, the limit is {base}"
    if change.relative_change is not None:
        text += f" ({change.relative_change:+.1%})"
    return text


def _inert(text: str, limit: int) -> str:
    """Turn untrusted text into one line without mentions, links and tags."""
    harmless = plain(text, limit=limit).translate(_HARMLESS)
    return _SCHEME.sub(_without_link, harmless)


def _without_link(scheme: re.Match[str]) -> str:
    """Replace the characters by which programs recognise a link with others that look the same."""
    return scheme[0].replace(":", "∶").replace("www.", "www․")
