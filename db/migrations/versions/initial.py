"""Create all tables of the models and the views, and set storage options.

Revision: 0010, after nothing
"""

from alembic import op

from roofwatch.db.projects import QUARANTINE
from roofwatch.db.schema import Base

# there is no release yet: a changed table changes this, and a store with another revision is
# refused
revision = "0010"
down_revision = None
branch_labels = None
depends_on = None

COMPRESSED = {"artefact_chunk": "packed"}
"""Columns with compressed values."""

# Views are for dashboards and SQL tools of others. A changed column breaks their queries, so names
# stay.
SERIES_POINT = f"""
CREATE VIEW series_point AS
SELECT
    project.name AS project, "case".kernel, "case".name AS case_id, series.implementation, series.runner_class,
    series.timer, series.cache, run.run_id, run.started_at, commit.sha, commit.first_parent_count, commit.committed_at,
    commit.subject, measurement.outcome, measurement.median_ns, measurement.q1_ns, measurement.q3_ns,
    measurement.utilisation, measurement.sample_count
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
    AND right(project.name, {len(QUARANTINE)}) <> '{QUARANTINE}'
"""
"""Every time in the history of a project, as `schema/run_filter.py` selects its runs."""

REGRESSION_POINT = """
CREATE VIEW regression_point AS
SELECT
    project.name AS project, regression.kernel, regression.sha,
    (regression.document #>> '{commit,first_parent_count}')::bigint AS first_parent_count,
    (regression.document #>> '{commit,committed_at}')::timestamptz AS committed_at, regression.verdict::text,
    regression.state::text, triage.state::text AS triage,
    (regression.document ->> 'typical_change')::double precision AS typical_change,
    regression.document ->> 'cause' AS cause, regression.document ->> 'summary' AS summary
FROM regression
JOIN project ON project.id = regression.project_id
JOIN triage ON triage.regression_id = regression.regression_id
"""
"""Regressions and improvements of the last analysis, with their triage."""


def upgrade() -> None:
    Base.metadata.create_all(op.get_bind(), checkfirst=False)
    for table, column in COMPRESSED.items():
        op.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET STORAGE EXTERNAL")
    for view in (SERIES_POINT, REGRESSION_POINT):
        op.execute(view)
