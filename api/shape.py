"""Whether a JSON document is of a size and depth that may be looked at, before anything looks at it."""

from __future__ import annotations

import orjson

from api.limits import Limits
from api.problems import ProblemError

_LISTS = ("cases", "measurements", "accuracies", "static_facts", "counters", "profiles", "ceilings", "artefacts")


_CONTAINERS = frozenset({list, dict})
_FLAT = frozenset({int, float, bool, type(None)})
"""What has nothing in it: most of a record is lists of times, each looked through at once."""


def parse_bounded(document: bytes, limits: Limits) -> object:
    """What a document says, where validating and storing it will cost no more than it may.

    Raises:
        ProblemError: not JSON, or more of something than may be.
    """
    # counted in the bytes: what a parser would make of them is many times as large
    if len(document) > limits.containers:
        containers = document.count(b"[") + document.count(b"{")
        if containers > limits.containers:
            raise _too_much(f"{containers} arrays and objects", limits.containers)
    if len(document) > limits.values:
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
    return parsed


def _check_values(parsed: object, limits: Limits) -> None:
    level = [parsed]
    for depth in range(limits.depth + 2):
        strings = [value for value in level if type(value) is str]
        containers = [value for value in level if type(value) in _CONTAINERS]
        if depth == limits.depth and containers:
            raise _too_much(f"more than {limits.depth} arrays and objects in each other", limits.depth)
        level = []
        for container in containers:
            if isinstance(container, dict):
                strings += container
                level += container.values()
            elif isinstance(container, list) and not _FLAT.issuperset(map(type, container)):
                level += container
        longest = max(map(len, strings), default=0)
        if longest > limits.string_characters:
            raise _too_much(f"a string of {longest} characters", limits.string_characters)
        if not level:
            return


def _too_much(what: str, limit: int) -> ProblemError:
    return ProblemError(422, "too-complex", f"the document has {what}, at most {limit} may be; split the run")
