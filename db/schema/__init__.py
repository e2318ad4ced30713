"""All tables."""

from roofwatch.db.schema import (
    access,
    agenda,
    analysis,
    compatibility,
    measurements,
    queue,
    regressions,
    runs,
)
from roofwatch.db.schema.table import Base

__all__ = [
    "Base",
    "access",
    "agenda",
    "analysis",
    "compatibility",
    "measurements",
    "queue",
    "regressions",
    "runs",
]
