"""Whether a JSON document is of a size and depth that may be looked at, before anything looks at it."""

from __future__ import annotations

from typing import Any

import orjson

from api.limits import Limits
from api.problems import ProblemError

_LISTS = ("cases", "measurements", "accuracies", "static_facts", "counters", "ceilings", "artefacts")


def check_shape(document: bytes, limits: Limits) -> None:
    """Bound what parsing, validation and storage will cost.

    Raises:
        ProblemError: not JSON, or more of something than may be.
    """
    # counted in the bytes: what a parser would make of them is many times as large
    containers = document.count(b"[") + document.count(b"{")
    if containers > limits.containers:
        raise _too_much(f"{containers} arrays and objects", limits.containers)
    values = document.count(b",")
    if values > limits.values:
        raise _too_much(f"{values} values", limits.values)
    try:
        parsed = orjson.loads(document)
    except orjson.JSONDecodeError as error:
        raise ProblemError(
            400, "bad-request", f"the body is not JSON: {error}; send a record as it was written"
        ) from None
    _check_values(parsed, limits)
    if isinstance(parsed, dict):
        for name in _LISTS:
            found = parsed.get(name)
            most = {"cases": limits.cases, "artefacts": limits.artefacts}.get(name, limits.entries)
            if isinstance(found, list) and len(found) > most:
                raise _too_much(f"{len(found)} {name}", most)


def _check_values(parsed: Any, limits: Limits) -> None:
    level: list[Any] = [parsed]
    for depth in range(limits.depth + 2):
        below: list[Any] = []
        for value in level:
            if isinstance(value, str):
                _check_string(value, limits)
            elif isinstance(value, list):
                below.extend(child for child in value if isinstance(child, (str, list, dict)))
            elif isinstance(value, dict):
                below.extend(child for child in value.values() if isinstance(child, (str, list, dict)))
                for key in value:
                    _check_string(key, limits)
        if depth == limits.depth and any(isinstance(value, (list, dict)) for value in level):
            raise _too_much(f"more than {limits.depth} arrays and objects in each other", limits.depth)
        if not below:
            return
        level = below


def _check_string(text: str, limits: Limits) -> None:
    if len(text) > limits.string_characters:
        raise _too_much(f"a string of {len(text)} characters", limits.string_characters)


def _too_much(what: str, limit: int) -> ProblemError:
    return ProblemError(422, "too-complex", f"the document has {what}, at most {limit} may be; split the run")
