"""All tables."""

from roofwatch.db.schema import access, alerts, measurements, regressions, runs
from roofwatch.db.schema.table import Base

__all__ = ["Base", "access", "alerts", "measurements", "regressions", "runs"]
