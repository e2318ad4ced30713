"""What a reader looks at beside measurements, made up: samples of the newest runs, and regressions between them."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
from sqlalchemy import Connection, Engine, text
from sqlalchemy.orm import Session

from bench.made_up_store import Shape
from roofwatch.db.ingest.samples import SampleSet, pack
from roofwatch.db.queries.runs import list_commits
from roofwatch.db.queries.series import list_series_keys
from roofwatch.db.regressions.judgements import replace_regressions
from roofwatch.db.values import Cause, ChangePoint, Regression, Suspect, Verdict

_SAMPLED_RUNS = 4
_BLOCKS, _SAMPLES_OF_A_BLOCK = 5, 20
_REGRESSIONS, _CHANGE_POINTS = 40, 50
_NEWEST_RUNS = text(
    """
    SELECT run.number, run.measured_on, run.started_at, measurement.series_id, measurement.median_ns
    FROM (
        SELECT run.* FROM run JOIN commit ON commit.id = commit_id JOIN project ON project.id = commit.project_id
        WHERE project.name = :project ORDER BY started_at DESC LIMIT :run_count
    ) run JOIN measurement ON measurement.measured_on = run.measured_on AND run_number = run.number
    """
)
_IS_JUDGED = text(
    """
    SELECT EXISTS (SELECT FROM regression JOIN commit ON commit.id = commit_id
        JOIN project ON project.id = commit.project_id WHERE name = :project)
    """
)


def fill_evidence(engine: Engine, shape: Shape, pair: int) -> None:
    """Make it up for one project, unless it is there."""
    project = shape.project(pair)
    with engine.begin() as connection:
        if connection.execute(_IS_JUDGED, {"project": project}).scalar_one():
            return
        _store_samples(connection, project)
    with Session(engine) as session:
        keys = list_series_keys(session, project, metric="median_ns")
        commits = list_commits(session, project)
    judged = []
    for number in range(_REGRESSIONS):
        before, at = commits[-2 - number // 2], commits[-1 - number // 2]
        own = keys[number * _CHANGE_POINTS % len(keys) :][:_CHANGE_POINTS]
        judged.append(
            Regression(
                project=project,
                commit=at,
                kernel=f"kernel_{number}",
                verdict=Verdict.REGRESSED,
                cause=Cause.CODE,
                summary=f"kernel_{number} became 10 % slower on {len(own)} series",
                change_points=tuple(
                    ChangePoint(key, at, before, Verdict.REGRESSED, 10_000.0, 11_000.0, "10 µs to 11 µs") for key in own
                ),
                suspects=(
                    Suspect(Cause.CODE, 0.8, "the machine code differs"),
                    Suspect(Cause.UNKNOWN, 0.2, "the rest"),
                ),
            )
        )
    replace_regressions(engine, project, judged)


def _store_samples(connection: Connection, project: str) -> None:
    rows = connection.execute(_NEWEST_RUNS, {"project": project, "run_count": _SAMPLED_RUNS}).all()
    noise = np.random.default_rng(7)
    driver = connection.connection.driver_connection
    assert driver is not None
    with (
        driver.cursor() as cursor,
        cursor.copy("COPY sample_set (run_number, series_id, measured_on, content) FROM STDIN") as copy,
    ):
        for row in rows:
            starts = [row.started_at + timedelta(seconds=block) for block in range(_BLOCKS)]
            samples = SampleSet(
                launches_per_sample=1,
                memory=None,
                autotuning=[],
                started_at=[start.isoformat() for start in starts],
                lengths=[_SAMPLES_OF_A_BLOCK] * _BLOCKS,
                facts=[{}] * _BLOCKS,
                samples_ns=row.median_ns * noise.normal(1, 0.01, _BLOCKS * _SAMPLES_OF_A_BLOCK),
            )
            copy.write_row((row.number, row.series_id, row.measured_on, pack(samples)))
