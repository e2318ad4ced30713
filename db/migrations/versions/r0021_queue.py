"""Keep a queue of jobs for runners, and what tokens may do with it.

Revision: 0021, after 0020
"""

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None
oldest_code = "0011"

_STATEMENTS = (
    """
    ALTER TABLE token
        ADD COLUMN runner_class TEXT,
        ADD COLUMN device_minutes DOUBLE PRECISION,
        DROP CONSTRAINT ck_token_scopes,
        ADD CONSTRAINT ck_token_scopes
            CHECK (scopes <@ ARRAY['ingest', 'read', 'triage', 'run', 'runner', 'admin']),
        ADD CONSTRAINT ck_token_runner_has_a_class_and_no_other_scope CHECK (
            (runner_class IS NOT NULL) = ('runner' = ANY (scopes))
            AND (runner_class IS NULL OR cardinality(scopes) = 1)),
        ADD CONSTRAINT ck_token_device_minutes_not_negative CHECK (device_minutes >= 0)
    """,
    """
    CREATE TABLE queued_job (
        job_id UUID NOT NULL,
        project_id INTEGER NOT NULL,
        runner_class TEXT NOT NULL,
        command TEXT[] NOT NULL,
        folder TEXT NOT NULL,
        priority VARCHAR(6) NOT NULL,
        requested_by TEXT NOT NULL,
        requested_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        device_minutes DOUBLE PRECISION,
        has_tree BOOLEAN NOT NULL,
        is_cancelled BOOLEAN NOT NULL,
        attempt_count BIGINT NOT NULL,
        line_count BIGINT NOT NULL,
        runner TEXT,
        claim_id UUID,
        leased_until TIMESTAMP WITH TIME ZONE,
        started_at TIMESTAMP WITH TIME ZONE,
        finished_at TIMESTAMP WITH TIME ZONE,
        outcome VARCHAR(9),
        exit_status BIGINT,
        spent_s DOUBLE PRECISION,
        CONSTRAINT pk_queued_job PRIMARY KEY (job_id),
        CONSTRAINT ck_queued_job_lease_has_a_holder_and_an_end
            CHECK ((claim_id IS NULL) = (leased_until IS NULL)),
        CONSTRAINT ck_queued_job_ended_with_an_outcome
            CHECK ((outcome IS NULL) = (finished_at IS NULL)),
        CONSTRAINT ck_queued_job_status_only_if_done
            CHECK ((outcome IS NOT DISTINCT FROM 'done') = (exit_status IS NOT NULL)),
        CONSTRAINT ck_queued_job_spent_s_not_negative CHECK (spent_s >= 0),
        CONSTRAINT ck_queued_job_attempt_count_not_negative CHECK (attempt_count >= 0),
        CONSTRAINT ck_queued_job_line_count_not_negative CHECK (line_count >= 0),
        CONSTRAINT ck_queued_job_device_minutes_not_negative CHECK (device_minutes >= 0),
        CONSTRAINT fk_queued_job_project_id FOREIGN KEY (project_id)
            REFERENCES project (id) ON DELETE CASCADE,
        CONSTRAINT ck_queued_job_jobpriority CHECK (priority IN ('high', 'normal', 'low')),
        CONSTRAINT ck_queued_job_joboutcome CHECK (outcome IN ('done', 'cancelled', 'lost'))
    )
    """,
    """
    CREATE INDEX ix_queued_job_open ON queued_job (runner_class, requested_at)
        WHERE outcome IS NULL
    """,
    """
    CREATE INDEX ix_queued_job_requested_by_started_at ON queued_job (requested_by, started_at)
    """,
    """
    CREATE INDEX ix_queued_job_project_id_requested_at ON queued_job (project_id, requested_at)
    """,
    """
    CREATE TABLE queued_content (
        job_id UUID NOT NULL,
        content BYTEA NOT NULL,
        CONSTRAINT pk_queued_content PRIMARY KEY (job_id),
        CONSTRAINT fk_queued_content_job_id FOREIGN KEY (job_id)
            REFERENCES queued_job (job_id) ON DELETE CASCADE
    )
    """,
    """
    CREATE TABLE queued_line (
        job_id UUID NOT NULL,
        number BIGINT NOT NULL,
        line TEXT NOT NULL,
        CONSTRAINT pk_queued_line PRIMARY KEY (job_id, number),
        CONSTRAINT fk_queued_line_job_id FOREIGN KEY (job_id)
            REFERENCES queued_job (job_id) ON DELETE CASCADE
    )
    """,
)


def upgrade() -> None:
    connection = op.get_bind()
    for statement in _STATEMENTS:
        connection.exec_driver_sql(statement)
