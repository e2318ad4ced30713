"""Judge a project: read its history from the store, find what changed, and keep the findings there."""

from __future__ import annotations

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from ci.history import judge_history
from ci.thresholds import Thresholds
from db.judgements import replace_regressions
from db.queries import list_pairs, read_series
from db.values import Regression

# Other measured metrics are the median time over constants of the case: judged once, shown in all units.
_JUDGED_METRICS = ("median_ns", "rmse_ratio", "registers", "spilled_registers", "local_bytes", "shared_bytes")


def judge_project(engine: Engine, project: str, thresholds: Thresholds | None = None) -> list[Regression]:
    """Judge all of a project's history anew and replace what was found before.

    Pairs count as runs of their two commits too: what was measured again corrects a point that a neighbour on the
    machine had spoilt.
    """
    with Session(engine) as session:
        series = read_series(session, project, metrics=_JUDGED_METRICS, include_pairs=True)
        pairs = list_pairs(session, project)
    found = judge_history(series, pairs, thresholds=thresholds)
    replace_regressions(engine, project, found)
    return found
