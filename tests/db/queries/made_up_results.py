"""Results around the measurements of a project that `tests.db.made_up_store` filled,
by SQL over sets.
"""

import json
from datetime import timedelta

import numpy as np
from sqlalchemy import Connection, Engine, text
from sqlalchemy.orm import Session

from roofwatch.db.queries.project import list_commits
from roofwatch.db.queries.series_keys import list_series_keys
from roofwatch.db.regressions.judgements import replace_regressions
from tests.builders import make_change_point, make_regression
from tests.db.made_up_store import Shape

_CHECKS = (
    """
    INSERT INTO accuracy (run_number, case_id, implementation, position, executor, outcome)
    SELECT run.number, version.case_id, 'triton', place, 'device', 'ok'
    FROM run JOIN project ON project.id = project_id,
        unnest(case_version_ids) WITH ORDINALITY listed (version_id, place)
    JOIN case_version version ON version.id = version_id WHERE project.name = :project
    """,
    """
    INSERT INTO tensor_error
        (run_number, case_id, implementation, position, tensor, max_abs_error, rmse_ratio, passed)
    SELECT run_number, case_id, implementation, 0, 'out', 1e-6, 1e-7, true
    FROM accuracy JOIN run ON number = run_number JOIN project ON project.id = project_id WHERE project.name = :project
    """,
    """
    INSERT INTO static_fact (case_id, fingerprint, implementation, function, target, outcome, configuration, toolchain,
        registers, occupancy_limits, instructions, code_hash)
    SELECT "case".id, target, 'triton', 'body', target, 'ok', '{}', '{}', 32, '{}', '{}', repeat('0', 64)
    FROM "case" JOIN project ON project.id = project_id, unnest(ARRAY['sm_90', 'sm_100']) target
    WHERE project.name = :project
    """,
    """
    INSERT INTO case_document (run_number, case_id, implementation, kind, position, document)
    SELECT run_number, case_id, implementation, kind, position, CASE kind
        WHEN 'counters' THEN json_build_object('case_id', "case".name, 'implementation', implementation,
            'function', 'body')
        ELSE json_build_object('case_id', "case".name, 'implementation', implementation, 'call_count', 3,
            'span_ns', 9000, 'busy_ns', 8000) END
    FROM accuracy JOIN "case" ON "case".id = case_id JOIN project ON project.id = project_id,
    unnest(ARRAY['counters', 'profiles']) kind WHERE project.name = :project
    """,
    """
    INSERT INTO compilation (run_number, position, static_fact_id, compile_ns)
    SELECT run.number, row_number() OVER (PARTITION BY run.number), fact.id, '{}'
    FROM run JOIN project ON project.id = project_id
    JOIN "case" ON "case".project_id = project.id JOIN static_fact fact ON fact.case_id = "case".id
    WHERE project.name = :project
    """,
)


def fill_checks(engine: Engine, shape: Shape, pair: int) -> None:
    """Checks, machine code, counters and profiles for all runs of a project."""
    with engine.begin() as connection:
        for statement in _CHECKS:
            connection.execute(text(statement), {"project": shape.project(pair)})


_SAMPLED_RUNS = 4
_BLOCKS, _SAMPLES_OF_A_BLOCK = 5, 20
_REGRESSIONS, _CHANGE_POINTS = 40, 50
_NEWEST_RUNS = text(
    """
    SELECT run.number, run.started_at, measurement.series_id, measurement.median_ns
    FROM (
        SELECT run.* FROM run JOIN commit ON commit.id = commit_id JOIN project ON project.id = commit.project_id
        WHERE project.name = :project ORDER BY started_at DESC LIMIT :run_count
    ) run JOIN measurement ON run_number = run.number
    """
)


def fill_evidence(engine: Engine, shape: Shape, pair: int) -> None:
    """Samples and regressions for one project."""
    project = shape.project(pair)
    with engine.begin() as connection:
        _store_samples(connection, project)
    with Session(engine) as session:
        keys = list_series_keys(session, project, metric="median_ns")
        commits = list_commits(session, project)
    judged = []
    for number in range(_REGRESSIONS):
        before, at = commits[-2 - number // 2], commits[-1 - number // 2]
        own = keys[number * _CHANGE_POINTS % len(keys) :][:_CHANGE_POINTS]
        changes = tuple(
            make_change_point(series=key, commit=at, previous_commit=before) for key in own
        )
        kernel = f"kernel_{number}"
        judged.append(
            make_regression(project=project, commit=at, kernel=kernel, change_points=changes)
        )
    replace_regressions(engine, project, judged)


def _store_samples(connection: Connection, project: str) -> None:
    rows = connection.execute(_NEWEST_RUNS, {"project": project, "run_count": _SAMPLED_RUNS}).all()
    noise = np.random.default_rng(7)
    driver = connection.connection.driver_connection
    assert driver is not None
    with (
        driver.cursor() as cursor,
        cursor.copy(
            "COPY sample_set (run_number, series_id, samples_ns, block_lengths, facts) FROM STDIN"
        ) as copy,
    ):
        for row in rows:
            starts = [row.started_at + timedelta(seconds=block) for block in range(_BLOCKS)]
            samples_ns = row.median_ns * noise.normal(1, 0.01, _BLOCKS * _SAMPLES_OF_A_BLOCK)
            facts = {"blocks": [{"started_at": start.isoformat()} for start in starts]}
            copy.write_row(
                (
                    row.number,
                    row.series_id,
                    samples_ns.tolist(),
                    [_SAMPLES_OF_A_BLOCK] * _BLOCKS,
                    json.dumps(facts),
                )
            )
