"""Every table that there is, wherever it is declared: what migrations are held against."""

from __future__ import annotations

from db.tables import access, alerts, artefacts, bisections
from db.tables.records import Base

__all__ = ["Base", "access", "alerts", "artefacts", "bisections"]
