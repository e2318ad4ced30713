"""Every table that there is, wherever it is declared: what migrations are held against."""

from __future__ import annotations

from roofwatch.db.schema import access, alerts, artefacts, bisections, judgements, results
from roofwatch.db.schema.table import Base

__all__ = ["Base", "access", "alerts", "artefacts", "bisections", "judgements", "results"]
