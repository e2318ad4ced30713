"""Leases of rows: one holder takes the first free row, and keeps it until a time."""

from typing import Any, TypeVar

from sqlalchemy import ColumnElement, select, update
from sqlalchemy.orm import InstrumentedAttribute, Session

from roofwatch.db.errors import StoreError

Key = TypeVar("Key")


class ClaimLostError(StoreError):
    """Another holder has taken the row over, or it has ended."""


def take_first(
    session: Session,
    key: InstrumentedAttribute[Key],
    *,
    condition: ColumnElement[bool],
    order: tuple[Any, ...],
    values: dict[str, Any],
) -> Key | None:
    """Set values of the first row that no other transaction is taking, and return its key.

    Args:
        session: In a transaction.
        key: Primary key of the table.
        condition: Which rows are free.
        order: The first row is taken.
        values: Columns that make the row taken, such as the claim and the end of the lease.
    """
    free = select(key).where(condition).order_by(*order).limit(1).with_for_update(skip_locked=True)
    taken = update(key.class_).where(key == free.scalar_subquery()).values(**values).returning(key)
    return session.scalar(taken)
