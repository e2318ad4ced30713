"""Events of Chrome traces: scan the file, read its header, and the launch shape of CUDA and HIP calls."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import orjson

from roofwatch.collector.profiling.profile_file import ProfileError
from roofwatch.collector.timing.stopwatch import garbage_left_alone

FIELDS = {
    "grid": "grid",
    "block": "block",
    "registers per thread": "registers_per_thread",
    "shared memory": "shared_memory_bytes",
    "blocks per SM": "blocks_per_sm",
    "warps per SM": "warps_per_sm",
    "est. achieved occupancy %": "est_achieved_occupancy_pct",
    "est. achieved occupancy": "est_achieved_occupancy_pct",
}
"""Of a kernel, by Kineto's words, and ours for them."""
_SHAPES = frozenset({"grid", "block"})


def launch_of(arguments: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
    """Those of `fields` that hold what they should: a grid and a block whole numbers, everything else a number."""
    found = {ours: plain(arguments[theirs]) for theirs, ours in fields.items() if theirs in arguments}
    return {name: value for name, value in found.items() if (_is_shape if name in _SHAPES else _is_number)(value)}


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, int) for each in value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_SHAPE_FIELDS = {
    "grid": "grid",
    "grid dim": "grid",
    "block": "block",
    "block dim": "block",
    "shared memory": "shared_memory_bytes",
    "shared size": "shared_memory_bytes",
}
_MOST_DIGITS = 18
"""Of a number of bytes: no memory is larger."""
_COUNT_THREADS = {"hipExtModuleLaunchKernel", "hipHccModuleLaunchKernel"}


def launch_said_by(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The shape of the launch that a call of HIP made, its grid in blocks; empty where it says none."""
    if not name.startswith("hip"):
        return {}
    said = launch_of(arguments, _SHAPE_FIELDS)
    if name in _COUNT_THREADS and "grid" in said and "block" in said:
        said["grid"] = _in_blocks(said["grid"], said["block"])
    return said


def bytes_said_by(name: str, arguments: Mapping[str, Any]) -> int:
    """The bytes that a call of HIP copies, which stand there as text; 0 where it says none."""
    size = str(arguments.get("size", "")) if name.startswith("hipMemcpy") else ""
    return int(size) if size.isdecimal() and len(size) <= _MOST_DIGITS else 0


def _in_blocks(threads: Sequence[int], block: Sequence[int]) -> list[int]:
    if 0 in block:
        return list(threads)
    # rounded up, in whole numbers
    return [-(-each // length) for each, length in zip(threads, block, strict=False)]


_DEVICE_FIELDS = (
    "id",
    "name",
    "totalGlobalMem",
    "computeMajor",
    "computeMinor",
    "maxThreadsPerBlock",
    "numSms",
    "warpSize",
)


_MOST_LEVELS = 8
"""Of lists and objects in each other. A reader of JSON takes a thousand, what goes through them after it does not."""


def plain(value: Any, *, levels: int = _MOST_LEVELS) -> Any:
    """As JSON has it; None for numbers that are not finite, or whole and of more than 64 bits, and for what lies deeper
    than so many levels.
    """
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        number = float(value) if isinstance(value, Decimal) else value
        return number if abs(number) < 2**63 or (isinstance(number, float) and math.isfinite(number)) else None
    if not isinstance(value, (list, dict)):
        return value
    if levels == 0:
        return None
    if isinstance(value, list):
        return [plain(each, levels=levels - 1) for each in value]
    return {name: plain(each, levels=levels - 1) for name, each in value.items()}


def declared_devices(properties: Any) -> list[dict[str, Any]]:
    declared = properties if isinstance(properties, list) else []
    return [
        {name: plain(device[name]) for name in _DEVICE_FIELDS if name in device}
        for device in declared
        if isinstance(device, dict)
    ]


def distributed_info(info: Any) -> dict[str, Any] | None:
    if not isinstance(info, dict):
        return None
    return {
        name: plain(info[name])
        for name in ("backend", "rank", "world_size", "pg_count", "nccl_version")
        if name in info
    }


Visit = Callable[[dict[str, Any]], None]

# times since 1970 in microseconds have more digits than a float: what has a point stays exact
_DECODER = json.JSONDecoder(parse_float=Decimal)
_LONG_TIME = re.compile(r'"ts"\s*:\s*(-?\d{13,}\.\d+)')
_PIECE_LENGTH = 2**20
_END_OF_EVENT = "}"
_MOST_TRIES = 4
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
        visit: Called with each event. A number with a point is a float, or what keeps all of its digits where a float
            would not: a `Decimal`, or text if it is a time.

    Returns:
        The fields beside the events; None, and nothing was visited, if the content is no trace.

    Raises:
        ProfileError: it is a trace, and cut short or corrupt.
    """
    header: dict[str, Any] = {}
    # events are many, hold no circles and are kept: looking through them takes a tenth of the time
    with garbage_left_alone():
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
        except (ValueError, RecursionError):
            if not is_trace:
                return None  # some other document, which its own reader will complain about
            raise _cut_short(name, key.end(), text) from None
        fields.append(Field(key[1], key.end(), at))
    if is_trace and not text.startswith("}", _skip(text, at)):
        raise _cut_short(name, at, text)
    return fields if is_trace else None


def _scan_array(text: str, at: int, name: str, visit: Visit) -> int:
    """Visit the elements; where the array ends."""
    between = _BETWEEN.match
    one_by_one_until = 0
    while True:
        at = between(text, at).end()  # type: ignore[union-attr]  # it matches nothing too
        if text.startswith("]", at):
            return at + 1
        piece = None if at < one_by_one_until else _piece(text, at)
        if piece is None:
            if at >= one_by_one_until:
                one_by_one_until = at + _PIECE_LENGTH
            piece = _one(text, at, name)
        elements, at = piece
        for element in elements:
            if isinstance(element, dict):
                visit(element)


def _piece(text: str, at: int) -> tuple[list[Any], int] | None:
    """As many whole elements from here on as fit into a piece, and where they end; None if that is not found out fast.

    What is taken for the end of an element is one if all before it, in brackets, is a whole array: inside of an element
    or of a text, brackets or quotes would be open.
    """
    end = at + _PIECE_LENGTH
    for _ in range(_MOST_TRIES):
        end = text.rfind(_END_OF_EVENT, at, end)
        if end < 0:
            return None
        try:
            return orjson.loads(_LONG_TIME.sub(r'"ts":"\1"', f"[{text[at : end + 1]}]")), end + 1
        except orjson.JSONDecodeError:
            continue
    return None


def _one(text: str, at: int, name: str) -> tuple[list[Any], int]:
    try:
        element, end = _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):  # the second of lists in lists in lists
        raise _cut_short(name, at, text) from None
    return [element], end


def _skip(text: str, at: int) -> int:
    found = _BETWEEN.match(text, at)
    return at if found is None else found.end()


def _cut_short(name: str, at: int, text: str) -> ProfileError:
    return ProfileError(
        f"{name}: not a whole trace: nothing readable at character {at} of {len(text)}; record it again, and let the "
        "profiler finish before the program ends"
    )
