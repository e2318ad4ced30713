"""Columns of values as the bytes of a binary COPY: to the bit what the driver makes of them row by row, in less time.

A row is the number of its fields in two bytes, then of each field its length in four bytes, -1 for NULL, and its bytes,
the most significant first. So fields of a fixed length that follow each other are an array of NumPy's, and only what
differs in length from row to row is put between them piece by piece.

Source: https://www.postgresql.org/docs/current/sql-copy.html, "Binary Format".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import chain, repeat
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray

_SIGNATURE = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END = b"\xff\xff"
_NULL = b"\xff\xff\xff\xff"
_FIXED = {"bool": "?", "int2": ">i2", "int4": ">i4", "int8": ">i8", "float4": ">f4", "float8": ">f8"}
_WIDEST = {"b": np.bool_, "i": np.int64, "f": np.float64}
"""By the kind of NumPy's type."""
_OIDS = {"int4": 23, "int8": 20}
"""By which Postgres knows the types of a list's values."""
_LENGTH = struct.Struct(">i")
_FIRST_DAY = date(2000, 1, 1)
_ROWS_AT_ONCE = 4_096
"""A block is on its way while the next is made."""


@dataclass(frozen=True)
class Same:
    """A column that has one value in all rows."""

    value: object


Column = Same | NDArray[Any] | Sequence[Any]
"""The values of a column; None, where it is no array, is NULL."""


def encode(kinds: Sequence[str], columns: Sequence[Column], row_count: int, encoding: str) -> Iterator[bytes]:
    """What COPY is sent, in blocks.

    Args:
        kinds: Type of each column, by Postgres's name: of a fixed length, `text`, `bytea`, `int4[]`,
            `int8[]`, or `date` where it is `Same`.
        columns: Of each the values, which are of that type.
        row_count: Values of each column.
        encoding: Of text, by Python's name.

    Raises:
        psycopg.DataError: a number is out of its type's range.
    """
    yield _SIGNATURE
    for begin in range(0, row_count, _ROWS_AT_ONCE):
        end = min(begin + _ROWS_AT_ONCE, row_count)
        rows = _Rows(end - begin, len(kinds), encoding)
        for kind, column in zip(kinds, columns, strict=True):
            rows.add(kind, column if isinstance(column, Same) else column[begin:end])
        yield rows.to_bytes()
    yield _END


def list_bytes(kind: str, values: Sequence[int]) -> bytes:
    """A list of numbers of that kind: dimensions, flags, type, then length and bound of the one dimension.

    Raises:
        psycopg.DataError: a number is out of its type's range.

    Source: Postgres's array_recv.
    """
    if not values:
        return struct.pack(">3i", 0, 0, _OIDS[kind])
    elements = _in_range(kind, values)
    return struct.pack(">5i", 1, 0, _OIDS[kind], len(values), 1) + _with_length(elements).tobytes()


class _Rows:
    """Rows that get one column after the other."""

    def __init__(self, row_count: int, field_count: int, encoding: str) -> None:
        self._row_count = row_count
        self._encoding = encoding
        self._pieces: list[Iterable[bytes]] = []
        self._fixed: list[tuple[str, Any]] = []
        """What comes next in all rows at one place: a type of NumPy's, and the values or the one value."""
        self._add_same(struct.pack(">h", field_count))

    def add(self, kind: str, column: Column) -> None:
        if isinstance(column, Same):
            self._add_same(_framed(_one(kind, column.value, self._encoding)))
            return
        if isinstance(column, np.ndarray):
            self._add_fixed(kind, column)
            return
        null_count = column.count(None)
        if null_count == self._row_count:
            self._add_same(_NULL)
        elif kind not in _FIXED:
            self._add_varying(kind, column)
        elif null_count:
            self._add_pieces(_some_framed(kind, column))
        else:
            self._add_fixed(kind, column)

    def to_bytes(self) -> bytes:
        self._end_fixed()
        return b"".join(self._pieces[0] if len(self._pieces) == 1 else chain.from_iterable(zip(*self._pieces)))  # noqa: B905  all are as long

    def _add_fixed(self, kind: str, column: NDArray[Any] | Sequence[Any]) -> None:
        values = _in_range(kind, column)
        self._add_same(_LENGTH.pack(values.itemsize))
        self._fixed.append((_FIXED[kind], values))

    def _add_varying(self, kind: str, column: Sequence[Any]) -> None:
        if kind != "text":
            self._add_pieces([_framed(_one(kind, value, self._encoding)) for value in column])
            return
        # a few words again and again
        sent = {word: _framed(_one(kind, word, self._encoding)) for word in set(column)}
        self._add_pieces(map(sent.__getitem__, column))

    def _add_same(self, content: bytes) -> None:
        self._fixed.append((f"V{len(content)}", np.void(content)))

    def _add_pieces(self, pieces: Iterable[bytes]) -> None:
        self._end_fixed()
        self._pieces.append(pieces)

    def _end_fixed(self) -> None:
        if not self._fixed:
            return
        fixed, self._fixed = self._fixed, []
        if all(kind.startswith("V") for kind, _ in fixed):
            self._pieces.append(repeat(b"".join(value.tobytes() for _, value in fixed), self._row_count))
            return
        whole = np.empty(self._row_count, dtype=[(f"f{place}", kind) for place, (kind, _) in enumerate(fixed)])
        for place, (_, values) in enumerate(fixed):
            whole[f"f{place}"] = values
        self._pieces.append(whole.view(f"V{whole.itemsize}").tolist())


def _in_range(kind: str, column: NDArray[Any] | Sequence[Any]) -> NDArray[Any]:
    """The values as an array of the type."""
    target = np.dtype(_FIXED[kind])
    try:
        values: NDArray[Any] = np.asarray(column, dtype=_WIDEST[target.kind])
        if target.kind == "i":
            limits = np.iinfo(target)
            if values.min() < limits.min or values.max() > limits.max:
                raise OverflowError(f"a number that {kind} cannot hold")
        with np.errstate(over="raise", under="ignore"):
            return values.astype(target)
    except (OverflowError, FloatingPointError) as error:
        raise psycopg.DataError(str(error)) from None


def _some_framed(kind: str, column: Sequence[Any]) -> list[bytes]:
    """Each value with its length, some being NULL."""
    values = _in_range(kind, [0 if value is None else value for value in column])
    framed = _with_length(values)
    pieces: list[bytes] = framed.view(f"V{framed.itemsize}").tolist()
    return [_NULL if value is None else piece for value, piece in zip(column, pieces, strict=True)]


def _with_length(values: NDArray[Any]) -> NDArray[Any]:
    framed = np.empty(len(values), dtype=[("length", ">i4"), ("value", values.dtype)])
    framed["length"] = values.itemsize
    framed["value"] = values
    return framed


def _one(kind: str, value: Any, encoding: str) -> bytes | None:
    """A value without its length."""
    if value is None:
        return None
    if kind in ("text", "bytea"):
        content: bytes = value.encode(encoding) if kind == "text" else value
        return content
    if kind.endswith("[]"):
        return list_bytes(kind[:-2], value)
    if kind == "date":
        return _LENGTH.pack((value - _FIRST_DAY).days)
    return _in_range(kind, [value]).tobytes()


def _framed(content: bytes | None) -> bytes:
    return _NULL if content is None else _LENGTH.pack(len(content)) + content
