"""What a record says as a document, field for field what `RunRecord.said` gives, in less than half of the time.

It is asked of every record that is stored, of tens of thousands of small parts. So each kind of part gets a function
made for its fields, as dataclasses get theirs; what orjson writes alike stays as it is, samples above all; and a part
is said when orjson comes to it, so that nothing is kept of what is written.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import orjson
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from collector.record import RunRecord

Saying = Callable[[Any], dict[str, Any]]


def write(record: RunRecord) -> tuple[bytes, bool]:
    """The document without fields at their defaults, but for its version, and with sorted keys; and whether it has
    fields that are not known.

    Raises:
        orjson.JSONEncodeError: a number is out of range.
    """
    has_unread = False

    def say_part(part: BaseModel) -> dict[str, Any]:
        nonlocal has_unread
        if part.__pydantic_extra__:
            has_unread = True
        return saying_of(type(part))(part)

    said = say_part(record) | {"schema_version": record.schema_version}
    return orjson.dumps(said, default=say_part, option=orjson.OPT_SORT_KEYS | orjson.OPT_UTC_Z), has_unread


def say(part: BaseModel) -> dict[str, Any]:
    """A part without fields at their defaults, by name; what orjson does not know itself stays as it is, and is said by
    this too where it is asked as orjson's `default`.
    """
    return saying_of(type(part))(part)


@cache
def saying_of(kind: type[BaseModel], without: tuple[str, ...] = ()) -> Saying:
    """A function that says a part of a kind, but for some fields: a line for each, and names for what they need."""
    lines = ["def say(part):", "    values, said = part.__dict__, {}"]
    needed: dict[str, Any] = {"in_json": to_jsonable_python}
    for name, field in kind.model_fields.items():
        if name in without:
            continue
        value = f"values[{name!r}]"
        if field.is_required():
            lines.append(f"    said[{name!r}] = {value}")
            continue
        default = needed[f"default_{name}"] = field.get_default(call_default_factory=True)
        is_other = "is not None" if default is None else f"!= default_{name}"
        lines.append(f"    if (value := {value}) {is_other}: said[{name!r}] = value")
    lines += ["    if part.__pydantic_extra__: said |= in_json(part.__pydantic_extra__)", "    return said"]
    exec("\n".join(lines), needed)  # noqa: S102  of the names of our own fields
    made: Saying = needed["say"]
    return made
