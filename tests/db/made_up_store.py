"""Fill a database with synthetic measurements, by SQL over sets: a million in seconds.

A pair of projects has a million measurements over two years: a deep one (few series, many runs) and
a wide one (many series, few runs). Series and runs have the same size in every database, so one
query can be timed at any scale.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import Engine, text

from roofwatch.model.metrics import STORED

_STARTED_AT = datetime(2024, 1, 1, tzinfo=UTC)
_RUNNER_CLASS = "made up"


@dataclass(frozen=True)
class Shape:
    """Size of a project. Its measurements are spread over the days evenly."""

    kind: str
    run_count: int
    series_count: int
    day_count: int = 730
    step_every: int = 1_000_000
    """One series in this many becomes 20 % slower somewhere."""

    @property
    def measurement_count(self) -> int:
        return self.run_count * self.series_count

    def project(self, pair: int) -> str:
        return f"{self.kind}/{pair}"

    def case_id(self, number: int) -> str:
        return f"kernel_{number % 40}/n={number}/float32/fwd"


DEEP = Shape("deep", run_count=2_000, series_count=250)
WIDE = Shape("wide", run_count=250, series_count=2_000)

_ENVIRONMENT = text(
    """
    INSERT INTO environment (fingerprint, runner_class, device_kind, device_name, device_memory_bytes, device_count,
        cpu_name, core_count, thread_count, os, python_version, torch_version, compile_knobs, clock_mode)
    VALUES ('made up', :runner_class, 'cuda', 'Made-up GPU', 1, 1, 'CPU', 4, 4, 'Linux', '3.11', '2.13', '{}', 'free')
    ON CONFLICT DO NOTHING
    """
)
_PROJECT = (
    "INSERT INTO project (name) VALUES (:project)",
    """
    INSERT INTO commit (project_id, sha, parents, first_parent_count, committed_at, author, subject)
    SELECT project.id, encode(sha224((:project || number)::bytea), 'hex') || repeat('0', 8), '{}', number,
        :started_at + number * :between_runs, 'Author', 'Change ' || number
    FROM project, generate_series(1, :run_count) number WHERE name = :project
    """,
    """
    INSERT INTO "case" (project_id, name, kernel, shape, dtype, direction)
    SELECT id, format('kernel_%s/n=%s/float32/fwd', number % 40, number), 'kernel_' || number % 40,
        json_build_object('n', number), 'float32', 'fwd'
    FROM project, generate_series(0, :series_count - 1) number WHERE name = :project ORDER BY number
    """,
    """
    INSERT INTO case_version (case_id, fingerprint, family, flop_count, memory_bytes, tags)
    SELECT "case".id, '', 'made up', 1e6, 1e6, '{}' FROM "case" JOIN project ON project.id = project_id
    WHERE project.name = :project ORDER BY 1
    """,
    """
    INSERT INTO series (case_version_id, implementation, timer, cache, runner_class, metrics)
    SELECT version.id, 'triton', 'cupti', 'cold', :runner_class, CAST(:metrics AS text[])
    FROM case_version version JOIN "case" ON "case".id = case_id JOIN project ON project.id = project_id
    WHERE project.name = :project ORDER BY 1
    """,
    """
    INSERT INTO run (run_id, project_id, commit_id, environment_id, content_hash, schema_version, harness_version,
        branch, is_dirty, started_at, finished_at, document, outcome_counts, case_version_ids, series_ids)
    SELECT gen_random_uuid(), project.id, commit.id, environment.id, '', '1.2', '1', 'main', false,
        committed_at, committed_at,
        json_build_object('commit', json_build_object('sha', sha, 'first_parent_count', first_parent_count,
            'committed_at', committed_at)),
        json_build_object('ok', :series_count), listed.versions, listed.series
    FROM project JOIN commit ON project_id = project.id, environment, (
        SELECT array_agg(version.id ORDER BY series.id) AS versions, array_agg(series.id ORDER BY series.id) AS series
        FROM series JOIN case_version version ON version.id = case_version_id JOIN "case" ON "case".id = case_id
        JOIN project ON project.id = project_id WHERE project.name = :project
    ) listed
    WHERE project.name = :project AND fingerprint = 'made up' ORDER BY first_parent_count
    """,
)
_METRICS = [metric.key for metric in STORED]
_MEASUREMENTS = f"""
    INSERT INTO measurement (median_ns, q1_ns, q3_ns, run_number, series_id, sample_count, block_count,
        outcome, is_memory_bound, launch_count, is_degraded, {", ".join(_METRICS)})
    SELECT median_ns, median_ns * 0.99, median_ns * 1.01, number, series_id, 100, 5,
        'ok', true, 100, false, {", ".join(["1 + random() / 10"] * len(_METRICS))}
    FROM (
        SELECT number, series_id, 1e4 * (1 + series_id % 97) * exp(0.02 * sqrt(-2 * ln(1 - random())) * cos(2 * pi() * random()))
            * CASE WHEN series_id % :step_every = 0 AND place > :run_count / 4 + series_id * 37 % (:run_count / 2 + 1)
                THEN 1.2 ELSE 1 END AS median_ns
        FROM (
            SELECT number, series_ids, row_number() OVER (ORDER BY run.started_at) AS place
            FROM run JOIN project ON project.id = project_id WHERE project.name = :project
        ) of_project, unnest(series_ids) series_id
        OFFSET 0
    ) made_up
    """


def fill(engine: Engine, shape: Shape, pair: int) -> None:
    """Make up one project."""
    project = shape.project(pair)
    values = {
        "project": project,
        "runner_class": _RUNNER_CLASS,
        "started_at": _STARTED_AT,
        "between_runs": timedelta(days=shape.day_count) / shape.run_count,
        "run_count": shape.run_count,
        "series_count": shape.series_count,
        "step_every": shape.step_every,
        "metrics": _METRICS,
    }
    with engine.begin() as connection:
        connection.execute(_ENVIRONMENT, values)
        connection.execute(text("SELECT setseed(0)"))
        for statement in (*_PROJECT, _MEASUREMENTS):
            connection.execute(text(statement), values)


def settle(engine: Engine) -> None:
    """As autovacuum leaves a database that grew over months."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM (ANALYZE)"))
