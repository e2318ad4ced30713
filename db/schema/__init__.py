"""All tables."""

from roofwatch.db.schema import access, measurements, regressions, runs
from roofwatch.db.schema.table import Base

__all__ = ["Base", "access", "measurements", "regressions", "runs"]
