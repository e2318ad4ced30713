"""What a record says as a document, field for field what `RunRecord.said` gives, in less than half of the time.

It is asked of every record that is stored, of tens of thousands of small parts. So each kind of part gets a function
made for its fields, as dataclasses get theirs; and what orjson writes alike stays as it is, samples above all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import NoneType
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from collector.record import RunRecord

_Saying = Callable[[Any, list[BaseModel]], Any]


def say(record: RunRecord) -> tuple[dict[str, Any], bool]:
    """The document without fields at their defaults, but for its version, and whether it has fields that are not known.

    What orjson writes as it should be is in it as in the record: lists of numbers, words, times (with `OPT_UTC_Z`).
    """
    unread: list[BaseModel] = []
    said = _saying_of(type(record))(record, unread) | {"schema_version": record.schema_version}
    return said, bool(unread)


@cache
def _saying_of(kind: type[BaseModel]) -> _Saying:
    """A function that says a part of a kind: a line for each field, and names for what the lines need."""
    lines = ["def say(part, unread):", "    values, said = part.__dict__, {}"]
    needed: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        saying = _saying_in(field.annotation)
        needed[f"say_{name}"] = saying
        value = "value" if saying is None else f"say_{name}(value, unread)"
        lines.append(f"    value = values[{name!r}]")
        if field.is_required():
            lines.append(f"    said[{name!r}] = {value}")
        else:
            default = needed[f"default_{name}"] = field.get_default(call_default_factory=True)
            is_other = "value is not None" if default is None else f"value != default_{name}"
            lines.append(f"    if {is_other}: said[{name!r}] = {value}")
    needed["say_more"] = to_jsonable_python
    lines += [
        "    if part.__pydantic_extra__:",
        "        unread.append(part)",
        "        said |= say_more(part.__pydantic_extra__)",
        "    return said",
    ]
    exec("\n".join(lines), needed)  # noqa: S102  of the names of our own fields
    made: _Saying = needed["say"]
    return made


def _saying_in(annotation: Any) -> _Saying | None:
    """How a value of a type is said; None where it stays as it is."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _saying_of(annotation)
    sayings = [_saying_in(inner) for inner in get_args(annotation) if inner not in (NoneType, Ellipsis)]
    inner = next((saying for saying in sayings if saying is not None), None)
    if inner is None or get_origin(annotation) is not tuple:
        return inner
    return lambda values, unread: [inner(value, unread) for value in values]
