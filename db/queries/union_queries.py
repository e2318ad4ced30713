"""Rows of several queries in one statement, one query's after the other's. Values come as they are: gathered into lists
or documents, thousands of rows take Postgres several times as long, and documents are then read by Python once more.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CompoundSelect,
    Double,
    Float,
    Integer,
    Select,
    Text,
    cast,
    literal_column,
    null,
    select,
    union_all,
)
from sqlalchemy.types import TypeEngine

_KINDS: tuple[tuple[type[TypeEngine[Any]], TypeEngine[Any]], ...] = (
    (Boolean, Boolean()),
    (Integer, BigInteger()),
    (Float, Double()),
    (TypeEngine, Text()),
)
"""Of a column the first that fits: in which type it comes."""


class Stacked:
    """Several queries, each by its name. A document is to be asked for as text."""

    def __init__(self, queries: Mapping[str, Select[*tuple[Any, ...]]]) -> None:
        self._parts = {name: query.subquery(name) for name, query in queries.items()}
        self._slots: dict[str, list[tuple[int, int]]] = {}
        """Of each query, for each column: its kind, and which of that kind it is."""
        self._widths = Counter[int]()
        for name, part in self._parts.items():
            seen = Counter[int]()
            slots = self._slots[name] = []
            for column in part.c:
                kind = next(place for place, (fitting, _) in enumerate(_KINDS) if isinstance(column.type, fitting))
                slots.append((kind, seen[kind]))
                seen[kind] += 1
            self._widths |= seen

    def statement(self) -> CompoundSelect[*tuple[Any, ...]]:
        """Of rows as wide as the widest needs of each type, each with the place of its query."""
        selects = []
        for place, (name, part) in enumerate(self._parts.items()):
            column_in = dict(zip(self._slots[name], part.c, strict=True))
            cells = [
                cast(column_in.get(slot, null()), _KINDS[slot[0]][1]).label(f"c{at}") for at, slot in self._order()
            ]
            selects.append(select(literal_column(str(place), Integer).label("part"), *cells).select_from(part))
        return union_all(*selects)

    def rows(self, found: Iterable[Sequence[Any]]) -> dict[str, list[tuple[Any, ...]]]:
        """What the statement found, by query: tuples as it would give them by itself."""
        of_part = defaultdict(list)
        for row in found:
            of_part[row[0]].append(row)
        position = {slot: at + 1 for at, slot in self._order()}
        return {
            name: list(map(itemgetter(*(position[slot] for slot in self._slots[name])), of_part[place]))
            for place, name in enumerate(self._parts)
        }

    def _order(self) -> list[tuple[int, tuple[int, int]]]:
        return list(enumerate((kind, number) for kind in sorted(self._widths) for number in range(self._widths[kind])))
