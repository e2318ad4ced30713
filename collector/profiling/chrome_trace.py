"""Scan the JSON text of a Chrome trace event by event.

A trace may be larger than memory allows as Python objects, so events are visited one at a time.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from roofwatch.collector.errors import ProfileError

# times since 1970 in microseconds have more digits than a float holds
_DECODER = json.JSONDecoder(parse_float=Decimal)
_SEPARATORS = re.compile(r"[\s,]*")
_KEY = re.compile(r'[\s,]*"((?:[^"\\]|\\.)*)"\s*:\s*')
_BARE_ARRAY = re.compile(r'[\s,]*\[[\s,]*(?=\{[^\0]{0,2000}?"ph")')
_OBJECT = re.compile(r"[\s,]*\{")

Visit = Callable[[dict[str, Any]], None]


@dataclass
class Document:
    """The top-level fields of a trace."""

    header: dict[str, Any] = field(default_factory=dict)
    """Values of all fields but `traceEvents`."""
    spans: list[tuple[str, int, int]] = field(default_factory=list)
    """Name of each field, and start and end of its value in the text; empty if the document is a bare array."""


def decode_trace(content: bytes) -> str:
    return content.decode("utf-8", errors="replace").lstrip("\ufeff")


def scan_trace(text: str, name: str, visit: Visit) -> Document | None:
    """Visit every event of a trace in the order of the file.

    Args:
        text: The document.
        name: Name of the file, for errors.
        visit: Called with each event; numbers with a decimal point are `Decimal`.

    Returns:
        The top-level fields; None if the text is not a trace.

    Raises:
        ProfileError: the trace is truncated or corrupt.
    """
    document = Document()
    if (array := _BARE_ARRAY.match(text)) is not None:
        _scan_events(text, array.end(), name, visit)
        return document
    start = _OBJECT.match(text)
    if start is None:
        return None
    at, has_events = start.end(), False
    while (key := _KEY.match(text, at)) is not None:
        if key[1] == "traceEvents" and text.startswith("[", key.end()):
            has_events = True
            at = _scan_events(text, key.end() + 1, name, visit)
        else:
            try:
                document.header[key[1]], at = _DECODER.raw_decode(text, key.end())
            except (ValueError, RecursionError):
                if not has_events:
                    return None
                raise _truncated(name, key.end(), text) from None
        document.spans.append((key[1], key.end(), at))
    if has_events and not text.startswith("}", _skip_separators(text, at)):
        raise _truncated(name, at, text)
    return document if has_events else None


def _scan_events(text: str, at: int, name: str, visit: Visit) -> int:
    """Visit the elements of an array and return the position after its end."""
    while not text.startswith("]", at := _skip_separators(text, at)):
        try:
            event, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            raise _truncated(name, at, text) from None
        if isinstance(event, dict):
            visit(event)
    return at + 1


def _skip_separators(text: str, at: int) -> int:
    found = _SEPARATORS.match(text, at)
    return at if found is None else found.end()


def _truncated(name: str, at: int, text: str) -> ProfileError:
    return ProfileError(
        f"{name}: not a whole trace: nothing readable at character {at} of {len(text)}; record it again, and let the "
        "profiler finish before the program ends"
    )
