"""A message of an alert as text, for each kind of channel. Pure.

Texts may come from a record or a repository, so they are untrusted. In plain text they become printable lines without
mentions, links or tags; in Markdown they are code spans; in the JSON of a webhook they are data.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

from roofwatch.ci.alerts.ownership import OWNER
from roofwatch.ci.report.markdown import code, plain
from roofwatch.db.alerts.values import AlertEvent, Delivery

_MAX_TITLE = 150
"""With the project and the prefix it fits into the 256 characters of an issue's title."""
_MAX_FACT = 500
_HARMLESS = str.maketrans({"@": "＠", "<": "‹", ">": "›", "`": "'", "*": "∗", "|": "¦", "[": "(", "]": ")"})
_SCHEME = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*):(?=//)|\bwww\.")
_PREFIXES = {AlertEvent.FIRED: "", AlertEvent.ESCALATED: "not acknowledged: ", AlertEvent.RESOLVED: "resolved: "}


def to_title(delivery: Delivery) -> str:
    """Write one line of plain text."""
    project, title = _inert(delivery.alert.project, 80), _inert(delivery.message.title, _MAX_TITLE)
    return f"[{project}] {_PREFIXES[delivery.event]}{title}"


def to_text(delivery: Delivery) -> str:
    """Write lines of plain text, without the title."""
    lines = [f"{name}: {_inert(text, _MAX_FACT)}" for name, text in _facts(delivery)]
    lines += [f"{link.name}: {link.url}" for link in delivery.message.links]
    if delivery.is_uncertain:
        lines.append("This may be a repetition: it is unknown whether an earlier attempt arrived.")
    return "\n".join(lines)


def to_markdown(delivery: Delivery) -> str:
    """Write the body of an issue or a comment on GitHub; only valid owners are mentioned."""
    prefix, message = _PREFIXES[delivery.event].capitalize(), delivery.message
    lines = [f"{f'**{prefix}**' if prefix else ''}{code(message.title, limit=_MAX_FACT)}", ""]
    lines += [f"- {name}: {code(text, limit=_MAX_FACT)}" for name, text in _facts(delivery)]
    mentioned = [owner for owner in message.owners if OWNER.fullmatch(owner)]
    if mentioned:
        lines += ["", " ".join(mentioned)]
    if message.links:
        lines += ["", " · ".join(f"[{link.name}]({link.url})" for link in message.links)]
    return "\n".join(lines)


def to_document(delivery: Delivery) -> dict[str, Any]:
    """Write the JSON document of a webhook."""
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


def _facts(delivery: Delivery) -> list[tuple[str, str]]:
    alert, owners = delivery.alert, ", ".join(delivery.message.owners)
    return [
        *((fact.name, fact.text) for fact in delivery.message.facts),
        *([("Owner", owners)] if owners else []),
        ("Rule", f"{alert.rule} ({alert.severity})"),
        ("Alert", f"{alert.alert_id}, episode {delivery.episode}"),
    ]


def _inert(text: str, limit: int) -> str:
    """Turn untrusted text into one line without mentions, links and tags."""
    shown = plain(text, limit=limit).translate(_HARMLESS)
    return _SCHEME.sub(lambda found: found[0].replace(":", "∶").replace("www.", "www․"), shown)
