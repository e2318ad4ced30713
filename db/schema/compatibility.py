"""The table that says which versions of roofwatch work on the schema."""

from sqlalchemy import CheckConstraint, Integer
from sqlalchemy.orm import Mapped, mapped_column

from roofwatch.db.schema.table import Base


class SchemaCompatibilityRow(Base):
    """One row, written by every migration. Older code reads it, so its columns never change."""

    __tablename__ = "schema_compatibility"
    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    # the oldest revision whose code works on this schema
    oldest_code: Mapped[str]
