"""What every table is made with: names of constraints, types of columns, and checks."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any

from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    CheckConstraint,
    DateTime,
    Dialect,
    Double,
    Integer,
    MetaData,
    SmallInteger,
    Text,
    TypeDecorator,
)
from sqlalchemy.orm import DeclarativeBase, mapped_column

_NAMES = {
    "pk": "pk_%(table_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
}


RowId = Annotated[int, mapped_column(Integer)]
"""Of the tables whose keys are repeated most, in four bytes."""


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=_NAMES)
    type_annotation_map = {  # noqa: RUF012 -- SQLAlchemy's own hook, read once
        str: Text(),
        int: BigInteger(),
        float: Double(),
        datetime: DateTime(timezone=True),
        list[str]: ARRAY(Text()),
        list[int]: ARRAY(Integer()),
        list[float]: ARRAY(Double()),
        list[datetime]: ARRAY(DateTime(timezone=True)),
        # json, not jsonb: it keeps the order of a shape's dimensions, and 1e20 stays a float
        dict[str, Any]: JSON(),
    }


def quoted(values: Iterable[str]) -> str:
    return ", ".join(f"'{value}'" for value in values)


def one_of(column: str, values: Iterable[str]) -> CheckConstraint:
    """A check that NULL passes too."""
    return CheckConstraint(f"{column} IN ({quoted(values)})", name=column)


def not_negative(*columns: str) -> list[CheckConstraint]:
    return [CheckConstraint(f"{column} >= 0", name=f"{column}_not_negative") for column in columns]


class Coded(TypeDecorator[str]):
    """One of a few words, stored as its place among them: a word more may only be added at the end."""

    impl = SmallInteger
    cache_ok = True

    def __init__(self, *words: str) -> None:
        super().__init__()
        self.words = words

    def process_bind_param(self, value: str | None, dialect: Dialect) -> int | None:  # noqa: ARG002 -- SQLAlchemy's
        return None if value is None else self.words.index(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> str | None:  # noqa: ARG002 -- the same
        return None if value is None else self.words[value]
