"""Restrict projects to some readers, also in the views for other tools.

Revision: 0020, after 0019
"""

from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None
oldest_code = "0011"

_ACCESS = """
    CREATE TABLE project_access (
        project TEXT NOT NULL,
        readers TEXT[] NOT NULL,
        CONSTRAINT pk_project_access PRIMARY KEY (project)
    )
"""
# `current_user` is the role that asks, though a view reads tables as its owner
_MAY_READ = """
    coalesce(
        (SELECT 'role:' || current_user = ANY (readers) FROM project_access
            WHERE project_access.project = project.name),
        (SELECT 'role:' || current_user = ANY (readers) FROM project_access
            WHERE project_access.project = '*'),
        true
    )
"""
_SERIES_POINT = f"""
    CREATE OR REPLACE VIEW series_point AS
    SELECT
        project.name AS project, "case".kernel, "case".name AS case_id, series.implementation,
        series.runner_class, series.timer, series.cache, run.run_id, run.started_at, commit.sha,
        commit.first_parent_count, commit.committed_at, commit.subject, measurement.outcome,
        measurement.median_ns, measurement.q1_ns, measurement.q3_ns, measurement.utilisation,
        measurement.sample_count
    FROM project
    CROSS JOIN LATERAL (
        SELECT (
            SELECT named.branch FROM run AS named
            WHERE named.project_id = project.id AND named.branch IS NOT NULL
            GROUP BY named.branch
            ORDER BY named.branch IN ('main', 'master', 'trunk') DESC, count(*) DESC, named.branch
            LIMIT 1
        ) AS branch
        OFFSET 0
    ) AS main_line
    JOIN run ON run.project_id = project.id
    JOIN commit ON commit.id = run.commit_id
    JOIN measurement ON measurement.run_number = run.number
    JOIN series ON series.id = measurement.series_id
    JOIN case_version ON case_version.id = series.case_version_id
    JOIN "case" ON "case".id = case_version.case_id
    WHERE NOT run.is_dirty AND run.pair_id IS NULL AND NOT run.is_unreachable
        AND (run.branch IS NULL OR run.branch = main_line.branch)
        AND right(project.name, 11) <> '?quarantine' AND {_MAY_READ}
"""
_REGRESSION_POINT = f"""
    CREATE OR REPLACE VIEW regression_point AS
    SELECT
        project.name AS project, regression.kernel, regression.sha,
        (regression.document #>> '{{commit,first_parent_count}}')::bigint AS first_parent_count,
        (regression.document #>> '{{commit,committed_at}}')::timestamptz AS committed_at,
        regression.verdict::text, regression.state::text, triage.state::text AS triage,
        (regression.document ->> 'typical_change')::double precision AS typical_change,
        regression.document ->> 'cause' AS cause, regression.document ->> 'summary' AS summary
    FROM regression
    JOIN project ON project.id = regression.project_id
    JOIN triage ON triage.regression_id = regression.regression_id
    WHERE {_MAY_READ}
"""


def upgrade() -> None:
    for statement in (_ACCESS, _SERIES_POINT, _REGRESSION_POINT):
        op.get_bind().exec_driver_sql(statement)
