"""All tables."""

from roofwatch.db.schema import access, compatibility, measurements, regressions, runs
from roofwatch.db.schema.table import Base

__all__ = ["Base", "access", "compatibility", "measurements", "regressions", "runs"]
