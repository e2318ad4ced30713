"""A message of an alert as text, for each kind of channel. Pure.

All that a message says may come from a record or a repository. In plain text and in titles it becomes printable lines
in which no service sees a mention, a link or a tag; in Markdown it stands in code spans; in HTML it is escaped; in the
JSON of a webhook it is data, as it is.
"""

from __future__ import annotations

import re
from html import escape
from typing import Any

from roofwatch.ci.alerts.ownership import OWNER
from roofwatch.ci.message import on_one_line
from roofwatch.ci.report.markdown import code, plain
from roofwatch.db.alerts.values import AlertEvent, Delivery

_MAX_TITLE = 150
"""With a project of 80 and our own words it fits into the 256 characters of an issue's title."""
_MAX_FACT = 500
_HARMLESS = str.maketrans({"@": "＠", "<": "‹", ">": "›", "`": "'", "*": "∗", "|": "¦", "[": "(", "]": ")"})
_SCHEME = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*):(?=//)|\bwww\.")
_PREFIXES = {AlertEvent.FIRED: "", AlertEvent.ESCALATED: "not acknowledged: ", AlertEvent.RESOLVED: "over: "}


def to_title(delivery: Delivery) -> str:
    """One line of plain text."""
    project, title = _inert(delivery.alert.project, 80), _inert(delivery.message.title, _MAX_TITLE)
    return f"[{project}] {_PREFIXES[delivery.event]}{title}"


def to_text(delivery: Delivery) -> str:
    """Lines of plain text, without the title."""
    message, alert = delivery.message, delivery.alert
    lines = [f"{fact.name}: {_inert(fact.text, _MAX_FACT)}" for fact in message.facts]
    if message.owners:
        lines.append(f"Owner: {', '.join(_inert(owner, 100) for owner in message.owners)}")
    lines += [f"{link.name}: {link.url}" for link in message.links]
    rule = f"Rule: {_inert(alert.rule, 100)} ({alert.severity})"
    lines.append(f"{rule}; alert {alert.alert_id}, episode {delivery.episode}")
    if delivery.is_uncertain:
        lines.append("This may have been said before: whether it arrived is not known.")
    return "\n".join(lines)


def to_markdown(delivery: Delivery) -> str:
    """The body of an issue or a comment on GitHub."""
    message, alert = delivery.message, delivery.alert
    prefix = _PREFIXES[delivery.event].capitalize()
    lines = [f"{f'**{prefix}**' if prefix else ''}{code(message.title, limit=_MAX_FACT)}", ""]
    lines += [f"- {fact.name}: {code(fact.text, limit=_MAX_FACT)}" for fact in message.facts]
    if message.owners:
        # only what is an owner may call somebody
        owners = [owner if OWNER.fullmatch(owner) else code(owner) for owner in message.owners]
        lines.append(f"- Owner: {', '.join(owners)}")
    if message.links:
        lines += ["", " · ".join(f"[{link.name}]({link.url})" for link in message.links)]
    lines += ["", f"Rule {code(alert.rule)}, {alert.severity}, project {code(alert.project)}."]
    return "\n".join(lines)


def to_html(delivery: Delivery) -> str:
    """A whole page for an e-mail."""
    message, alert = delivery.message, delivery.alert
    rows = [(fact.name, fact.text) for fact in message.facts]
    if message.owners:
        rows.append(("Owner", ", ".join(message.owners)))
    rows += [("Rule", f"{alert.rule} ({alert.severity})"), ("Alert", f"{alert.alert_id}, episode {delivery.episode}")]
    table = "".join(
        f"<tr><th align=left valign=top>{escape(name)}</th><td>{_escaped(text)}</td></tr>" for name, text in rows
    )
    links = " · ".join(f'<a href="{escape(link.url)}">{escape(link.name)}</a>' for link in message.links)
    return (
        f"<!doctype html><html><body><h3>{_PREFIXES[delivery.event]}{_escaped(message.title)}</h3>"
        f"<p>{_escaped(alert.project)}</p><table>{table}</table><p>{links}</p></body></html>"
    )


def to_document(delivery: Delivery) -> dict[str, Any]:
    """The JSON document of a webhook."""
    message, alert = delivery.message, delivery.alert
    return {
        "version": 1,
        "event": delivery.event.value,
        "alert_id": str(alert.alert_id),
        "episode": delivery.episode,
        "project": alert.project,
        "rule": alert.rule,
        "severity": alert.severity.value,
        "title": message.title,
        "facts": [{"name": fact.name, "text": fact.text} for fact in message.facts],
        "owners": list(message.owners),
        "links": [{"name": link.name, "url": link.url} for link in message.links],
    }


def _inert(text: str, limit: int) -> str:
    """Foreign text as one line that is shown as it is and does nothing."""
    shown = plain(text, limit=limit).translate(_HARMLESS)
    return _SCHEME.sub(lambda found: found[0].replace(":", "∶").replace("www.", "www․"), shown)


def _escaped(text: str) -> str:
    return escape(on_one_line(text))
