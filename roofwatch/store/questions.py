"""What the database and a server are asked for, and what they answer with."""

from __future__ import annotations

from dataclasses import dataclass

from roofwatch.db.auth.values import Triage
from roofwatch.db.values import Regression


@dataclass(frozen=True)
class TriagedRegression:
    """A regression, and what people decided about it."""

    regression_id: str
    """The same in every judgement."""
    regression: Regression
    triage: Triage


@dataclass(frozen=True)
class SeriesQuestion:
    """Which series of a project; None means whatever it is."""

    project: str
    kernel: str | None = None
    metric: str | None = None
    case_id: str | None = None
    include_pairs: bool = False
    """Also runs that are one side of a pair."""
    include_dirty: bool = False
    """Also runs of work trees that differed from their commits."""
