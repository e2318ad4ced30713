"""A message of an alert as text, for each kind of channel. Pure.

All that a message says may come from a record or a repository. In plain text and in titles it becomes printable lines
in which no service sees a mention, a link or a tag; in Markdown it stands in code spans; in HTML it is escaped; in the
JSON of a webhook it is data, as it is.
"""

from __future__ import annotations

import re
from dataclasses import asdict
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
    lines = [f"{name}: {_inert(text, _MAX_FACT)}" for name, text in _lines(delivery)]
    lines += [f"{link.name}: {link.url}" for link in delivery.message.links]
    if delivery.is_uncertain:
        lines.append("This may have been said before: whether it arrived is not known.")
    return "\n".join(lines)


def to_markdown(delivery: Delivery) -> str:
    """The body of an issue or a comment on GitHub."""
    prefix, links = _PREFIXES[delivery.event].capitalize(), delivery.message.links
    lines = [f"{f'**{prefix}**' if prefix else ''}{code(delivery.message.title, limit=_MAX_FACT)}", ""]
    lines += [f"- {name}: {code(text, limit=_MAX_FACT)}" for name, text in _lines(delivery)]
    # only what is an owner may call somebody
    called = [owner for owner in delivery.message.owners if OWNER.fullmatch(owner)]
    if called:
        lines += ["", " ".join(called)]
    if links:
        lines += ["", " · ".join(f"[{link.name}]({link.url})" for link in links)]
    return "\n".join(lines)


def to_html(delivery: Delivery) -> str:
    """A whole page for an e-mail."""
    table = "".join(
        f"<tr><th align=left valign=top>{escape(name)}</th><td>{_escaped(text)}</td></tr>"
        for name, text in _lines(delivery)
    )
    links = " · ".join(f'<a href="{escape(link.url)}">{escape(link.name)}</a>' for link in delivery.message.links)
    return (
        f"<!doctype html><html><body><h3>{_PREFIXES[delivery.event]}{_escaped(delivery.message.title)}</h3>"
        f"<p>{_escaped(delivery.alert.project)}</p><table>{table}</table><p>{links}</p></body></html>"
    )


def to_document(delivery: Delivery) -> dict[str, Any]:
    """The JSON document of a webhook."""
    alert = delivery.alert
    return {
        "version": 1,
        "event": delivery.event,
        "alert_id": str(alert.alert_id),
        "episode": delivery.episode,
        "project": alert.project,
        "rule": alert.rule,
        "severity": alert.severity,
        **asdict(delivery.message),
    }


def _lines(delivery: Delivery) -> list[tuple[str, str]]:
    """What is said besides the title, each with its name."""
    alert, owners = delivery.alert, ", ".join(delivery.message.owners)
    return [
        *((fact.name, fact.text) for fact in delivery.message.facts),
        *([("Owner", owners)] if owners else []),
        ("Rule", f"{alert.rule} ({alert.severity})"),
        ("Alert", f"{alert.alert_id}, episode {delivery.episode}"),
    ]


def _inert(text: str, limit: int) -> str:
    """Foreign text as one line that is shown as it is and does nothing."""
    shown = plain(text, limit=limit).translate(_HARMLESS)
    return _SCHEME.sub(lambda found: found[0].replace(":", "∶").replace("www.", "www․"), shown)


def _escaped(text: str) -> str:
    return escape(on_one_line(text))
