"""Fields of a record that a newer minor version wrote and this one only keeps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any

from pydantic import BaseModel

from roofwatch.collector.record.part import Part

_EXTRA = attrgetter("__pydantic_extra__")  # what model_extra gives, without a call for each part


def find_unread(part: Part) -> dict[str, Any]:
    """What the part and all parts in it keep beyond the fields that are known, by path."""
    return {prefix + name: value for prefix, name, value in _unread(part)}


def unread_depth(part: Part) -> int:
    """Arrays and objects in each other, at most, where a document has an unread field; 0 where it has none."""
    # each step of a prefix, which ends with a dot, is an array or object, as is the document
    return max((1 + prefix.count(".") + _depth(value) for prefix, _, value in _unread(part)), default=0)


def _depth(value: Any) -> int:
    level, depth = [value], 0
    while level := [each for each in level if isinstance(each, dict | list)]:
        depth += 1
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
    return depth


def _unread(part: Part) -> Iterable[tuple[str, str, Any]]:
    """Each with the path before its name."""
    # of tens of thousands of parts hardly one has any, and looking takes a third of the time of looking with the path
    return _with_paths(part, "") if _has_any(type(part), [part]) else ()


def _has_any(kind: type[BaseModel], parts: Sequence[BaseModel]) -> bool:
    """Whether one of some parts of a kind, or of those in them, has such a field."""
    if any(map(_EXTRA, parts)):
        return True
    return any(_has_any(inner, list(_in_field(parts, name))) for name, inner in _fields_with_parts(kind).items())


def _in_field(parts: Sequence[BaseModel], name: str) -> Iterable[BaseModel]:
    values = [value for value in map(attrgetter(name), parts) if value is not None]
    return chain.from_iterable(value if isinstance(value, tuple) else (value,) for value in values)


def _with_paths(part: BaseModel, prefix: str) -> Iterator[tuple[str, str, Any]]:
    for name, value in (part.model_extra or {}).items():
        yield prefix, name, value
    for name in _fields_with_parts(type(part)):
        value = getattr(part, name)
        for step, child in enumerate(value) if isinstance(value, tuple) else ((None, value),):
            if isinstance(child, BaseModel):
                yield from _with_paths(child, f"{prefix}{name}{'' if step is None else f'.{step}'}.")


@cache
def _fields_with_parts(part: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """Kinds of part by the field that may hold some: all others, such as samples, need not be looked through."""
    kinds = {name: _kind_in(field.annotation) for name, field in part.model_fields.items()}
    return {name: kind for name, kind in kinds.items() if kind is not None}


def _kind_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    kinds = (_kind_in(inner) for inner in getattr(annotation, "__args__", ()))
    return next((kind for kind in kinds if kind is not None), None)
