"""The events of a Chrome trace one at a time, so that a long trace needs the memory of its text and of what is kept.

Source: Trace Event Format; the document is an object with `traceEvents`, or the array of events by itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from collector.profiles.source import ProfileError

Visit = Callable[[dict[str, Any]], None]

# times since 1970 in microseconds have more digits than a float: what has a point stays exact
_DECODER = json.JSONDecoder(parse_float=Decimal)
_BETWEEN = re.compile(r"[\s,]*")
_KEY = re.compile(r'[\s,]*"((?:[^"\\]|\\.)*)"\s*:\s*')


@dataclass(frozen=True)
class Field:
    """Where the value of a field of the document stands in its text."""

    name: str
    start: int
    end: int


def scan_trace(content: bytes, name: str, visit: Visit) -> dict[str, Any] | None:
    """Visit every event of a trace in the order of the file.

    Args:
        content: The document.
        name: Of the file, for errors.
        visit: Called with each event; numbers with a point are `Decimal`.

    Returns:
        The fields beside the events; None, and nothing was visited, if the content is no trace.

    Raises:
        ProfileError: it is a trace, and cut short or corrupt.
    """
    header: dict[str, Any] = {}
    fields = _scan_document(content.decode("utf-8", errors="replace").lstrip("\ufeff"), name, visit, header)
    return None if fields is None else header


def find_fields(text: str, name: str) -> list[Field] | None:
    """Where the fields of a trace are, its `traceEvents` included; none of them if it is the array of events by itself.

    Returns:
        None if the text is no trace.

    Raises:
        ProfileError: it is a trace, and cut short or corrupt.
    """
    return _scan_document(text, name, lambda _: None, {})


def _scan_document(text: str, name: str, visit: Visit, header: dict[str, Any]) -> list[Field] | None:
    at = _skip(text, 0)
    if text.startswith("[", at):
        first = _skip(text, at + 1)
        if not text.startswith("{", first) or '"ph"' not in text[first : first + 2_000]:
            return None
        _scan_array(text, at + 1, name, visit)
        return []
    return _scan_object(text, at + 1, name, visit, header) if text.startswith("{", at) else None


def _scan_object(text: str, at: int, name: str, visit: Visit, header: dict[str, Any]) -> list[Field] | None:
    fields: list[Field] = []
    is_trace = False
    while (key := _KEY.match(text, at)) is not None:
        if key[1] == "traceEvents" and text.startswith("[", key.end()):
            is_trace = True
            at = _scan_array(text, key.end() + 1, name, visit)
            fields.append(Field(key[1], key.end(), at))
            continue
        try:
            header[key[1]], at = _DECODER.raw_decode(text, key.end())
        except ValueError:
            if not is_trace:
                return None  # some other document, which its own reader will complain about
            raise _cut_short(name, key.end(), text) from None
        fields.append(Field(key[1], key.end(), at))
    if is_trace and not text.startswith("}", _skip(text, at)):
        raise _cut_short(name, at, text)
    return fields if is_trace else None


def _scan_array(text: str, at: int, name: str, visit: Visit) -> int:
    """Visit the elements; where the array ends."""
    decode = _DECODER.raw_decode
    between = _BETWEEN.match
    while True:
        at = between(text, at).end()  # type: ignore[union-attr]  # it matches nothing too
        if text.startswith("]", at):
            return at + 1
        try:
            element, at = decode(text, at)
        except ValueError:
            raise _cut_short(name, at, text) from None
        if isinstance(element, dict):
            visit(element)


def _skip(text: str, at: int) -> int:
    found = _BETWEEN.match(text, at)
    return at if found is None else found.end()


def _cut_short(name: str, at: int, text: str) -> ProfileError:
    return ProfileError(
        f"{name}: not a whole trace: nothing readable at character {at} of {len(text)}; record it again, and let the "
        "profiler finish before the program ends"
    )
