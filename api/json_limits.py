"""Whether a JSON document is of a size and depth that may be looked at, before anything looks at it."""

from __future__ import annotations

import orjson

from roofwatch.api.limits import Limits
from roofwatch.api.problems import ProblemError

_LISTS = ("cases", "measurements", "accuracies", "static_facts", "counters", "profiles", "ceilings", "artefacts")


_CONTAINERS = frozenset({list, dict})
_FLAT = frozenset({int, float, bool, type(None)})
"""What has nothing in it: most of a record is lists of times, each looked through at once."""
_CONTAINER_BYTES, _VALUE_BYTES, _KEY_BYTES, _STRING_BYTES = 200, 64, 84, 32
"""So much each takes of memory; a key is a string too, and a string in a list a value. Found by the most that a process
grew (CPython 3.11, orjson 3.11) while it parsed documents of all of one kind.
"""
_WIDEST_BYTES = 4
"""Of each character of a string that has one beyond the usual ones."""
_BEYOND_ASCII = bytes(range(128, 256))
_CHUNK_BYTES = 2**20


def weigh(document: bytes, limits: Limits) -> int:
    """How much memory a document takes at most while it is parsed and validated, in bytes, itself included.

    Counted in the bytes, where what stands within strings counts too: what a parser would make of them is many times
    as large.

    Raises:
        ProblemError: more of something than may be.
    """
    values, keys = document.count(b","), document.count(b":")
    containers = document.count(b"[") + document.count(b"{")
    strings = document.count(b'"') // 2
    for count, most, name in (
        (containers, limits.containers, "arrays and objects"),
        (values, limits.values, "values"),
        (keys, limits.keys, "keys"),
    ):
        if count > most:
            raise _too_much(f"{count} {name}", most)
    size_bytes = (
        2 * len(document)
        + _widened_bytes(document, limits)
        + _CONTAINER_BYTES * containers
        + _VALUE_BYTES * values
        + _KEY_BYTES * keys
        + _STRING_BYTES * strings
    )
    if size_bytes > limits.memory_bytes:
        raise _too_much(f"so many values and strings that reading it takes {size_bytes} bytes", limits.memory_bytes)
    return size_bytes


def _widened_bytes(document: bytes, limits: Limits) -> int:
    """By how much strings may take more than the bytes that say them: one wide character widens all of its string."""
    wide = document.count(b"\\u")
    if not document.isascii():
        view = memoryview(document)
        chunks = (bytes(view[begin : begin + _CHUNK_BYTES]) for begin in range(0, len(view), _CHUNK_BYTES))
        wide += sum(len(chunk) - len(chunk.translate(None, _BEYOND_ASCII)) for chunk in chunks)
    return _WIDEST_BYTES * min(len(document), wide * limits.string_characters)


def parse_bounded(document: bytes, limits: Limits) -> object:
    """What a document says that was weighed, where validating and storing it will cost no more than it may.

    Raises:
        ProblemError: not JSON, or more of something than may be.
    """
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
