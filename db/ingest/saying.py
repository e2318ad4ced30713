"""What a record says as a document, field for field what `RunRecord.said` gives, in less than half of the time.

It is asked of every record that is stored, of tens of thousands of small parts. So each kind of part gets a function
made for its fields, as dataclasses get theirs; what orjson writes alike stays as it is, samples above all; and the
document is written piece by piece, so that little is kept of what is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from types import NoneType
from typing import Any, get_args, get_origin

import orjson
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from roofwatch.collector.record.measurement import Block, Measurement
from roofwatch.collector.record.record import RunRecord

Facts = list[dict[str, Any]]
"""What the blocks of a measurement say but when they began and their samples, which are kept otherwise."""
Saying = Callable[[Any, list[BaseModel]], dict[str, Any]]
"""Says a part, and adds to the list what it meets that has fields that are not known."""

_AT_ONCE = 128
"""Parts of a piece."""
_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_UTC_Z


def write(
    record: RunRecord, unread: list[BaseModel], take: Callable[[Measurement, Facts], None] | None = None
) -> Iterator[bytes]:
    """The document without fields at their defaults, but for its version, and with sorted keys; in pieces that follow
    each other, none of which ends inside a text.

    Args:
        record: To be written.
        unread: Gets every part that has fields that are not known.
        take: Is called with each measurement, in their order.

    Raises:
        orjson.JSONEncodeError: a number is out of range.
    """
    said = saying_of(RunRecord, is_deep=False)(record, unread) | {"schema_version": record.schema_version}
    for place, name in enumerate(sorted(said)):
        yield (b"," if place else b"{") + orjson.dumps(name) + b":"
        value = said[name]
        if name == "measurements":
            yield from _write_list(value, _saying_of_measurements(unread, take))
        elif isinstance(value, tuple):
            yield from _write_list(value, partial(_say_part, unread=unread))
        else:
            yield orjson.dumps(value, default=partial(_say_part, unread=unread), option=_OPTIONS)
    yield b"}"


def _say_part(part: BaseModel, *, unread: list[BaseModel]) -> dict[str, Any]:
    return saying_of(type(part))(part, unread)


def _write_list(parts: Sequence[Any], say_one: Callable[[Any], dict[str, Any]]) -> Iterator[bytes]:
    for begin in range(0, len(parts), _AT_ONCE):
        some = list(map(say_one, parts[begin : begin + _AT_ONCE]))
        yield (b"," if begin else b"[") + orjson.dumps(some, option=_OPTIONS)[1:-1]
    yield b"]"


def _saying_of_measurements(
    unread: list[BaseModel], take: Callable[[Measurement, Facts], None] | None
) -> Callable[[Measurement], dict[str, Any]]:
    say_others = saying_of(Measurement, without=("blocks",))
    say_facts = saying_of(Block, without=("started_at", "samples_ns"))

    def say_whole(measurement: Measurement) -> dict[str, Any]:
        said, blocks = say_others(measurement, unread), measurement.blocks
        facts = [say_facts(block, unread) for block in blocks]
        if take is not None:
            take(measurement, facts)
        if blocks:
            said["blocks"] = facts
            for block, whole in zip(blocks, facts, strict=True):
                whole["started_at"] = block.started_at
                whole["samples_ns"] = block.samples_ns
        return said

    return say_whole


def say(part: BaseModel) -> dict[str, Any]:
    """A part without fields at their defaults, by name; what orjson does not know itself stays as it is, and is said by
    this too where it is asked as orjson's `default`.
    """
    return saying_of(type(part))(part, [])


@cache
def saying_of(kind: type[BaseModel], without: tuple[str, ...] = (), *, is_deep: bool = True) -> Saying:
    """A function that says a part of a kind, but for some fields: a line for each, and names for what they need. Parts
    that it has are said as well, or left to orjson's `default`.
    """
    lines = ["def say(part, unread):", "    values, said = part.__dict__, {}"]
    needed: dict[str, Any] = {"in_json": to_jsonable_python}
    for name, field in kind.model_fields.items():
        if name in without:
            continue
        value, saying = f"values[{name!r}]", "value"
        inner = _part_in(field.annotation) if is_deep else None
        if inner is not None:
            needed[f"say_{name}"] = saying_of(inner)
            is_many = get_origin(field.annotation) is tuple
            saying = f"[say_{name}(one, unread) for one in value]" if is_many else f"say_{name}(value, unread)"
        if field.is_required():
            lines.append(f"    value = {value}; said[{name!r}] = {saying}")
            continue
        default = needed[f"default_{name}"] = field.get_default(call_default_factory=True)
        is_other = "is not None" if default is None else f"!= default_{name}"
        lines.append(f"    if (value := {value}) {is_other}: said[{name!r}] = {saying}")
    lines += [
        "    if part.__pydantic_extra__:",
        "        said |= in_json(part.__pydantic_extra__)",
        "        unread.append(part)",
        "    return said",
    ]
    exec("\n".join(lines), needed)  # noqa: S102  of the names of our own fields
    made: Saying = needed["say"]
    return made


def _part_in(annotation: Any) -> type[BaseModel] | None:
    """The kind of part that a field has one or none of, or a tuple of; None of a field of anything else."""
    candidates = get_args(annotation) or (annotation,)
    parts = [one for one in candidates if isinstance(one, type) and issubclass(one, BaseModel)]
    rest = [one for one in candidates if one not in parts and one not in (Ellipsis, NoneType)]
    return parts[0] if len(parts) == 1 and not rest else None
