"""All tables."""

from roofwatch.db.schema import access, agenda, measurements, regressions, runs
from roofwatch.db.schema.table import Base

__all__ = ["Base", "access", "agenda", "measurements", "regressions", "runs"]
