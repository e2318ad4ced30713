"""All tables."""

from roofwatch.db.schema import access, analysis, compatibility, measurements, regressions, runs
from roofwatch.db.schema.table import Base

__all__ = ["Base", "access", "analysis", "compatibility", "measurements", "regressions", "runs"]
