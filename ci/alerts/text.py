"""An alert in words, for each kind of channel. Pure.

All that a message says may come from a record or a repository. In plain text and in titles it becomes one printable
line each, in which no service sees a mention, a link or a tag; in Markdown it stands in code spans; in HTML it is
escaped; in the JSON of a webhook it is what it is, as data.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from typing import Any

from roofwatch.ci.message import on_one_line
from roofwatch.ci.report.markdown import code, plain
from roofwatch.db.alerts.values import AlertEvent, Delivery, Message, Severity

_MAX_TITLE = 150
"""With a project of 80 and our own words it fits into the 256 characters of an issue's title."""
_MAX_FACT = 500
_HARMLESS = str.maketrans({"@": "＠", "<": "‹", ">": "›", "`": "'", "*": "∗", "|": "¦", "[": "(", "]": ")"})
_SCHEME = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*):(?=//)|\bwww\.")
_OWNER = re.compile(r"@[\w-]+(/[\w.-]+)?|[^\s@<>]+@[^\s@<>]+\.[^\s@<>]+", re.ASCII)
_WORDS = {AlertEvent.FIRED: "", AlertEvent.ESCALATED: "not acknowledged: ", AlertEvent.RESOLVED: "over: "}


@dataclass(frozen=True)
class Notice:
    """What is said of an alert, and of which."""

    project: str
    rule: str
    severity: Severity
    event: AlertEvent
    alert_id: str
    episode: int
    message: Message
    is_uncertain: bool = False
    """It may have been said before."""


def notice_of(delivery: Delivery) -> Notice:
    alert = delivery.alert
    return Notice(
        project=alert.project,
        rule=alert.rule,
        severity=alert.severity,
        event=delivery.event,
        alert_id=str(alert.alert_id),
        episode=delivery.episode,
        message=delivery.message,
        is_uncertain=delivery.is_uncertain,
    )


def to_title(notice: Notice) -> str:
    """One line of plain text."""
    return f"[{inert(notice.project, 80)}] {_WORDS[notice.event]}{inert(notice.message.title, _MAX_TITLE)}"


def to_text(notice: Notice) -> str:
    """Lines of plain text, without the title."""
    message = notice.message
    lines = [f"{fact.name}: {inert(fact.text, _MAX_FACT)}" for fact in message.facts]
    if message.owners:
        lines.append(f"Owner: {', '.join(inert(owner, 100) for owner in message.owners)}")
    lines += [f"{link.name}: {link.url}" for link in message.links]
    lines.append(
        f"Rule: {inert(notice.rule, 100)} ({notice.severity}); alert {notice.alert_id}, episode {notice.episode}"
    )
    if notice.is_uncertain:
        lines.append("This may have been said before: whether it arrived is not known.")
    return "\n".join(lines)


def to_markdown(notice: Notice) -> str:
    """A text for GitHub."""
    message = notice.message
    lines = [f"**{_capital(_WORDS[notice.event])}**{code(message.title, limit=_MAX_FACT)}", ""]
    lines += [f"- {fact.name}: {code(fact.text, limit=_MAX_FACT)}" for fact in message.facts]
    if message.owners:
        # those that may be called, are
        owners = [owner if _OWNER.fullmatch(owner) else code(owner) for owner in message.owners]
        lines.append(f"- Owner: {', '.join(owners)}")
    if message.links:
        lines += ["", " · ".join(f"[{link.name}]({link.url})" for link in message.links)]
    lines += ["", f"Rule {code(notice.rule)}, {notice.severity}, project {code(notice.project)}."]
    return "\n".join(lines).replace("****", "")


def to_html(notice: Notice) -> str:
    """A whole page for an e-mail."""
    message = notice.message
    rows = [(fact.name, _escaped(fact.text)) for fact in message.facts]
    if message.owners:
        rows.append(("Owner", _escaped(", ".join(message.owners))))
    rows.append(("Rule", f"{_escaped(notice.rule)} ({notice.severity})"))
    rows.append(("Alert", f"{notice.alert_id}, episode {notice.episode}"))
    table = "".join(f"<tr><th align=left valign=top>{escape(name)}</th><td>{text}</td></tr>" for name, text in rows)
    links = " · ".join(f'<a href="{escape(link.url)}">{escape(link.name)}</a>' for link in message.links)
    return (
        f"<!doctype html><html><body><h3>{_WORDS[notice.event]}{_escaped(message.title)}</h3>"
        f"<p>{_escaped(notice.project)}</p><table>{table}</table><p>{links}</p></body></html>"
    )


def to_document(notice: Notice) -> dict[str, Any]:
    """A document for machines."""
    message = notice.message
    return {
        "version": 1,
        "event": notice.event.value,
        "alert_id": notice.alert_id,
        "episode": notice.episode,
        "project": notice.project,
        "rule": notice.rule,
        "severity": notice.severity.value,
        "title": message.title,
        "facts": [{"name": fact.name, "text": fact.text} for fact in message.facts],
        "owners": list(message.owners),
        "links": [{"name": link.name, "url": link.url} for link in message.links],
    }


def inert(text: str, limit: int) -> str:
    """Foreign text as one line that is shown as it is and does nothing."""
    shown = plain(text, limit=limit).translate(_HARMLESS)
    return _SCHEME.sub(lambda found: found[0].replace(":", "∶").replace("www.", "www․"), shown)


def _escaped(text: str) -> str:
    return escape(on_one_line(text))


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
