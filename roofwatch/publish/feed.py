"""The Atom feed of a project's regressions.

Source: RFC 4287.
"""

from collections.abc import Sequence
from xml.etree import ElementTree

from roofwatch.model.triage import TriagedRegression

_NAMESPACE = "http://www.w3.org/2005/Atom"
_MAX_ENTRIES = 50


def feed(project: str, regressions: Sequence[TriagedRegression]) -> str:
    """Write the newest regressions as a feed, with links that are relative to it."""
    ElementTree.register_namespace("", _NAMESPACE)
    root = ElementTree.Element(f"{{{_NAMESPACE}}}feed")
    entries = regressions[:_MAX_ENTRIES]
    dates = [triaged.regression.commit.committed_at for triaged in entries]
    _add(root, "title", f"{project}: regressions found by roofwatch")
    _add(root, "id", f"urn:roofwatch:{project}")
    _add(root, "updated", max(dates).isoformat() if dates else "1970-01-01T00:00:00+00:00")
    author = _add(root, "author", "")
    _add(author, "name", "roofwatch")
    for triaged in entries:
        regression = triaged.regression
        entry = _add(root, "entry", "")
        _add(
            entry, "title", f"{regression.kernel}: {regression.verdict} at {regression.range_text}"
        )
        _add(entry, "id", f"urn:uuid:{triaged.regression_id}")
        _add(entry, "updated", regression.commit.committed_at.isoformat())
        link = _add(entry, "link", "")
        link.set("href", f"regression.html#id={triaged.regression_id}")
        _add(entry, "summary", regression.summary)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _add(parent: ElementTree.Element, name: str, text: str) -> ElementTree.Element:
    element = ElementTree.SubElement(parent, f"{{{_NAMESPACE}}}{name}")
    # XML knows no control characters
    element.text = "".join(character for character in text if character.isprintable())
    return element
