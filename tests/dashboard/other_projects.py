"""A project in which every text is hostile."""

from __future__ import annotations

from sqlalchemy import Engine

from roofwatch.db.auth.values import TriageState
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.regressions.judgements import replace_regressions
from roofwatch.db.regressions.triage import regression_id, set_triage
from roofwatch.db.values import Cause, Suspect
from tests.builders import (
    make_change_point,
    make_commit,
    make_measurement,
    make_record,
    make_regression,
    make_series_key,
)

HOSTILE_PROJECT = "hostile/project"
HOSTILE = (
    "<img src=x onerror=globalThis.wasRun=1><script>globalThis.wasRun=1</script>[a](javascript:globalThis.wasRun=1)"
)


def store_hostile_project(engine: Engine) -> None:
    kernel = HOSTILE.replace("/", "")
    case_id = f"{kernel}/n=1/float32/fwd"
    for number in range(2):
        record = make_record(
            number,
            project=HOSTILE_PROJECT,
            commit=make_commit(number, author=HOSTILE, subject=HOSTILE),
            measurements=[make_measurement(case_id, implementation=HOSTILE)],
        )
        ingest_record(engine, record)
    series = make_series_key(project=HOSTILE_PROJECT, case_id=case_id, implementation=HOSTILE)
    change = make_change_point(1, series=series, evidence=HOSTILE)
    regression = make_regression(
        1,
        project=HOSTILE_PROJECT,
        kernel=kernel,
        summary=HOSTILE,
        change_points=(change,),
        suspects=(Suspect(Cause.CODE, 1.0, HOSTILE),),
        family=HOSTILE,
    )
    replace_regressions(engine, HOSTILE_PROJECT, [regression])
    set_triage(
        engine,
        HOSTILE_PROJECT,
        regression_id(regression),
        TriageState.ACKNOWLEDGED,
        person=HOSTILE,
        reason=HOSTILE,
        actor=HOSTILE,
    )
