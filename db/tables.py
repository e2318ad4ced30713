"""Every table that there is, wherever it is declared: what migrations are held against."""

from __future__ import annotations

from db import access_models, alert_models, artefact_models, bisection_models
from db.models import Base

__all__ = ["Base", "access_models", "alert_models", "artefact_models", "bisection_models"]
