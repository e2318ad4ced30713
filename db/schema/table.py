"""What every table is made with: naming of constraints, column types, checks."""

import enum
from collections.abc import Iterable
from dataclasses import fields
from datetime import datetime
from typing import Annotated, Any, TypeVar

from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    CheckConstraint,
    DateTime,
    Double,
    Enum,
    Integer,
    MetaData,
    Text,
)
from sqlalchemy.orm import DeclarativeBase, mapped_column

T = TypeVar("T")

_NAMES = {
    "pk": "pk_%(table_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
}

RowId = Annotated[int, mapped_column(Integer)]
"""Key of a table whose keys are stored most often, in four bytes."""


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
        # json, not jsonb: it keeps the order of a shape's dimensions, and 1e20 stays a float
        dict[str, Any]: JSON(),
        # text with a check of the values
        enum.Enum: Enum(
            enum.Enum,
            native_enum=False,
            create_constraint=True,
            values_callable=lambda kind: [member.value for member in kind],
        ),
    }


def to_value(kind: type[T], row: Base, **others: object) -> T:
    """Build a dataclass from the columns that are named like its fields, and from other values."""
    field_names = {field.name for field in fields(kind)}  # type: ignore[arg-type]  # a dataclass
    columns = field_names - others.keys()
    return kind(**{name: getattr(row, name) for name in columns}, **others)


def quoted(values: Iterable[str]) -> str:
    return ", ".join(f"'{value}'" for value in values)


def one_of(column: str, values: Iterable[str]) -> CheckConstraint:
    """Check that a column has one of some values, or NULL."""
    return CheckConstraint(f"{column} IN ({quoted(values)})", name=column)


def not_negative(*columns: str) -> list[CheckConstraint]:
    return [CheckConstraint(f"{column} >= 0", name=f"{column}_not_negative") for column in columns]
