"""What profilers saw of cases, in tables by month like all that runs found; and by which preset a run was sampled.

Revision: 0014, after 0013
"""

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_BEFORE = ("measurement", "sample_set", "accuracy", "tensor_error", "compilation", "counters")
_NEW = ("profile", "profile_row")
_TABLES = """
    CREATE TABLE profile (
        run_number INTEGER NOT NULL,
        case_id INTEGER NOT NULL,
        implementation TEXT NOT NULL,
        measured_on DATE NOT NULL,
        position INTEGER NOT NULL,
        source TEXT NOT NULL,
        call_count BIGINT NOT NULL,
        span_ns BIGINT NOT NULL,
        busy_ns BIGINT NOT NULL,
        launch_delay_ns DOUBLE PRECISION,
        left_out_count BIGINT NOT NULL,
        left_out_ns BIGINT NOT NULL,
        CONSTRAINT pk_profile PRIMARY KEY (run_number, case_id, implementation, measured_on),
        CONSTRAINT ck_profile_source CHECK (source IN ('torch_profiler')),
        CONSTRAINT ck_profile_call_count_positive CHECK (call_count > 0),
        CONSTRAINT ck_profile_busy_within_the_span CHECK (busy_ns BETWEEN 0 AND span_ns),
        CONSTRAINT ck_profile_left_out_count_not_negative CHECK (left_out_count >= 0),
        CONSTRAINT ck_profile_left_out_ns_not_negative CHECK (left_out_ns >= 0)
    ) PARTITION BY RANGE (measured_on);
    CREATE TABLE profile_row (
        run_number INTEGER NOT NULL,
        case_id INTEGER NOT NULL,
        implementation TEXT NOT NULL,
        position INTEGER NOT NULL,
        measured_on DATE NOT NULL,
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        device TEXT NOT NULL,
        count BIGINT NOT NULL,
        total_ns BIGINT NOT NULL,
        max_ns BIGINT,
        bytes BIGINT,
        grid BIGINT[] NOT NULL,
        block BIGINT[] NOT NULL,
        registers BIGINT,
        shared_bytes BIGINT,
        estimated_occupancy DOUBLE PRECISION,
        configuration_count BIGINT,
        CONSTRAINT pk_profile_row PRIMARY KEY (run_number, case_id, implementation, position, measured_on),
        CONSTRAINT ck_profile_row_kind CHECK (kind IN ('kernel', 'memcpy', 'memset', 'operator')),
        CONSTRAINT ck_profile_row_count_positive CHECK (count > 0),
        CONSTRAINT ck_profile_row_total_ns_not_negative CHECK (total_ns >= 0),
        CONSTRAINT ck_profile_row_max_ns_not_negative CHECK (max_ns >= 0),
        CONSTRAINT ck_profile_row_bytes_not_negative CHECK (bytes >= 0),
        CONSTRAINT ck_profile_row_registers_not_negative CHECK (registers >= 0),
        CONSTRAINT ck_profile_row_shared_bytes_not_negative CHECK (shared_bytes >= 0),
        CONSTRAINT ck_profile_row_estimated_occupancy_not_negative CHECK (estimated_occupancy >= 0),
        CONSTRAINT ck_profile_row_configuration_count_not_negative CHECK (configuration_count >= 0)
    ) PARTITION BY RANGE (measured_on)
"""
_OF_PROFILE = ("source", "call_count", "span_ns", "busy_ns", "launch_delay_ns", "left_out_count", "left_out_ns")
_OF_ROW = (
    *("kind", "name", "device", "count", "total_ns", "max_ns", "bytes"),
    *("grid", "block", "registers", "shared_bytes", "estimated_occupancy", "configuration_count"),
)
# an older version keeps what it does not know of a record beside the run
_SENT = "json_array_elements(run.unread_fields -> 'profiles') WITH ORDINALITY AS sent (one, place)"
_TAKEN_UP = (
    f"""
    INSERT INTO profile (run_number, case_id, implementation, measured_on, position, {", ".join(_OF_PROFILE)})
    SELECT run.number, "case".id, one ->> 'implementation', run.measured_on, place - 1,
        coalesce(source, 'torch_profiler'), call_count, span_ns, busy_ns, launch_delay_ns,
        coalesce(left_out_count, 0), coalesce(left_out_ns, 0)
    FROM run CROSS JOIN {_SENT}
    CROSS JOIN json_to_record(one) AS said (source text, call_count bigint, span_ns bigint, busy_ns bigint,
        launch_delay_ns double precision, left_out_count bigint, left_out_ns bigint)
    JOIN "case" ON "case".project_id = run.project_id AND "case".name = one ->> 'case_id'
    """,
    f"""
    INSERT INTO profile_row (run_number, case_id, implementation, measured_on, position, {", ".join(_OF_ROW)})
    SELECT run.number, "case".id, one ->> 'implementation', run.measured_on, at - 1,
        kind, said.name, device, count, total_ns, max_ns, bytes,
        coalesce(grid, '{{}}'), coalesce(block, '{{}}'), registers, shared_bytes, estimated_occupancy,
        configuration_count
    FROM run CROSS JOIN {_SENT}
    CROSS JOIN json_array_elements(one -> 'rows') WITH ORDINALITY AS listed (activity, at)
    CROSS JOIN json_to_record(activity) AS said (kind text, name text, device text, count bigint, total_ns bigint,
        max_ns bigint, bytes bigint, grid bigint[], block bigint[], registers bigint, shared_bytes bigint,
        estimated_occupancy double precision, configuration_count bigint)
    JOIN "case" ON "case".project_id = run.project_id AND "case".name = one ->> 'case_id'
    """,
    "UPDATE run SET preset = unread_fields ->> 'preset' WHERE unread_fields -> 'preset' IS NOT NULL",
    """
    UPDATE run SET unread_fields = (unread_fields::jsonb - 'profiles' - 'preset')::json
    WHERE unread_fields -> 'profiles' IS NOT NULL OR unread_fields -> 'preset' IS NOT NULL
    """,
)
_HANDED_DOWN = (
    """
    UPDATE run SET unread_fields = (unread_fields::jsonb || jsonb_build_object('preset', preset))::json
    WHERE preset IS NOT NULL
    """,
    f"""
    UPDATE run SET unread_fields = (unread_fields::jsonb || jsonb_build_object('profiles', sent.profiles))::json
    FROM (
        SELECT profile.run_number, profile.measured_on, jsonb_agg(
            jsonb_build_object('case_id', "case".name, 'implementation', profile.implementation,
                {", ".join(f"'{name}', profile.{name}" for name in _OF_PROFILE)},
                'rows', coalesce(seen.rows, '[]'))
            ORDER BY profile.position
        ) AS profiles
        FROM profile JOIN "case" ON "case".id = profile.case_id
        LEFT JOIN (
            SELECT run_number, case_id, implementation, measured_on, jsonb_agg(
                jsonb_build_object({", ".join(f"'{name}', {name}" for name in _OF_ROW)}) ORDER BY position
            ) AS rows FROM profile_row GROUP BY run_number, case_id, implementation, measured_on
        ) AS seen USING (run_number, case_id, implementation, measured_on)
        GROUP BY profile.run_number, profile.measured_on
    ) AS sent WHERE sent.run_number = run.number AND sent.measured_on = run.measured_on
    """,
)


def upgrade() -> None:
    op.execute("ALTER TABLE run ADD preset text")
    op.execute(_TABLES)
    for table in _NEW:
        op.execute(f"CREATE TABLE partitions.{table}_default PARTITION OF {table} DEFAULT")
    for statement in _TAKEN_UP:
        op.execute(statement)
    _take_along(*_BEFORE, *_NEW)


def downgrade() -> None:
    for statement in _HANDED_DOWN:
        op.execute(statement)
    _take_along(*_BEFORE)
    for table in _NEW:
        op.execute(f"DROP TABLE {table}")
    op.execute("ALTER TABLE run DROP preset")


def _take_along(*tables: str) -> None:
    """What goes with a run, in the order in which an ingest stores it."""
    deletions = "".join(
        f"DELETE FROM {table} WHERE measured_on = OLD.measured_on AND run_number = OLD.number; " for table in tables
    )
    op.execute(
        "CREATE OR REPLACE FUNCTION delete_results_of_run() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN {deletions} RETURN NULL; END $$"
    )
