"""The first tables.

Revision: 0001, after nothing
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# written out, not imported: a migration stays what it was when it ran
_OUTCOME = (
    "outcome IN ('ok', 'incorrect', 'compile_error', 'out_of_memory', 'crashed', 'timed_out', 'unsupported', 'invalid')"
)


def upgrade() -> None:
    op.create_table(
        "environment",
        sa.Column("id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("runner_class", sa.Text(), nullable=False),
        sa.Column("device_kind", sa.Text(), nullable=False),
        sa.Column("device_name", sa.Text(), nullable=False),
        sa.Column("device_memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("device_count", sa.BigInteger(), nullable=False),
        sa.Column("power_limit_w", sa.Double(), nullable=True),
        sa.Column("driver_version", sa.Text(), nullable=True),
        sa.Column("compute_capability", sa.Text(), nullable=True),
        sa.Column("cpu_name", sa.Text(), nullable=False),
        sa.Column("core_count", sa.BigInteger(), nullable=False),
        sa.Column("thread_count", sa.BigInteger(), nullable=False),
        sa.Column("os", sa.Text(), nullable=False),
        sa.Column("python_version", sa.Text(), nullable=False),
        sa.Column("torch_version", sa.Text(), nullable=False),
        sa.Column("triton_version", sa.Text(), nullable=True),
        sa.Column("cuda_version", sa.Text(), nullable=True),
        sa.Column("compile_knobs", sa.JSON(), nullable=False),
        sa.CheckConstraint("device_kind IN ('cpu', 'cuda', 'hip')", name=op.f("ck_environment_device_kind")),
        sa.CheckConstraint("core_count >= 0", name=op.f("ck_environment_core_count_not_negative")),
        sa.CheckConstraint("device_count >= 0", name=op.f("ck_environment_device_count_not_negative")),
        sa.CheckConstraint("device_memory_bytes >= 0", name=op.f("ck_environment_device_memory_bytes_not_negative")),
        sa.CheckConstraint("thread_count >= 0", name=op.f("ck_environment_thread_count_not_negative")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_environment")),
        sa.UniqueConstraint("fingerprint", name=op.f("uq_environment_fingerprint")),
    )
    op.create_table(
        "project",
        sa.Column("id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_project")),
        sa.UniqueConstraint("name", name=op.f("uq_project_name")),
    )
    op.create_table(
        "case",
        sa.Column("id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kernel", sa.Text(), nullable=False),
        sa.Column("shape", sa.JSON(), nullable=False),
        sa.Column("dtype", sa.Text(), nullable=False),
        sa.Column("direction", sa.Text(), nullable=False),
        sa.CheckConstraint("direction IN ('fwd', 'bwd')", name=op.f("ck_case_direction")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_case_project_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_case")),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_case_project_id_name")),
    )
    op.create_index(op.f("ix_case_project_id_kernel"), "case", ["project_id", "kernel"], unique=False)
    op.create_table(
        "commit",
        sa.Column("id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("sha", sa.Text(), nullable=False),
        sa.Column("parents", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("first_parent_count", sa.BigInteger(), nullable=False),
        sa.Column("committed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.CheckConstraint("first_parent_count >= 0", name=op.f("ck_commit_first_parent_count_not_negative")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_commit_project_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_commit")),
        sa.UniqueConstraint("project_id", "sha", name=op.f("uq_commit_project_id_sha")),
    )
    op.create_table(
        "regression",
        sa.Column("id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("commit_id", sa.Integer(), nullable=False),
        sa.Column("kernel", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("is_confirmed", sa.Boolean(), nullable=False),
        sa.CheckConstraint(
            "cause IN ('code', 'autotune', 'toolchain', 'driver', 'clock', 'runner', 'harness', 'unknown')",
            name=op.f("ck_regression_cause"),
        ),
        sa.CheckConstraint("state IN ('open', 'dismissed')", name=op.f("ck_regression_state")),
        sa.CheckConstraint(
            "verdict IN ('regressed', 'improved', 'unchanged', 'inconclusive')", name=op.f("ck_regression_verdict")
        ),
        sa.ForeignKeyConstraint(["commit_id"], ["commit.id"], name=op.f("fk_regression_commit_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_regression")),
        sa.UniqueConstraint("commit_id", "kernel", "verdict", name=op.f("uq_regression_commit_id_kernel_verdict")),
    )
    op.create_table(
        "run",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("commit_id", sa.Integer(), nullable=False),
        sa.Column("environment_id", sa.Integer(), nullable=False),
        sa.Column("content_hash", sa.Text(), nullable=False),
        sa.Column("schema_version", sa.Text(), nullable=False),
        sa.Column("harness_version", sa.Text(), nullable=False),
        sa.Column("branch", sa.Text(), nullable=True),
        sa.Column("is_dirty", sa.Boolean(), nullable=False),
        sa.Column("pair_id", sa.Uuid(), nullable=True),
        sa.Column("pair_side", sa.Text(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ingested_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("unread_fields", sa.JSON(), nullable=False),
        sa.CheckConstraint("pair_side IS NULL OR pair_side IN ('base', 'head')", name=op.f("ck_run_pair_side")),
        sa.CheckConstraint("(pair_id IS NULL) = (pair_side IS NULL)", name=op.f("ck_run_pair_has_side")),
        sa.ForeignKeyConstraint(["commit_id"], ["commit.id"], name=op.f("fk_run_commit_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["environment_id"], ["environment.id"], name=op.f("fk_run_environment_id")),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_run")),
    )
    op.create_index(op.f("ix_run_commit_id"), "run", ["commit_id"], unique=False)
    op.create_index(op.f("ix_run_environment_id"), "run", ["environment_id"], unique=False)
    op.create_index(
        op.f("ix_run_pair_id"), "run", ["pair_id"], unique=False, postgresql_where=sa.text("pair_id IS NOT NULL")
    )
    op.create_index(op.f("ix_run_started_at"), "run", ["started_at"], unique=False)
    op.create_table(
        "ceiling",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("level", sa.Text(), nullable=True),
        sa.Column("dtype", sa.Text(), nullable=True),
        sa.Column("per_s", sa.Double(), nullable=False),
        sa.Column("up_to_bytes", sa.BigInteger(), nullable=True),
        sa.Column("method", sa.Text(), nullable=False),
        sa.CheckConstraint("level IS NULL OR level IN ('dram', 'cache')", name=op.f("ck_ceiling_level")),
        sa.CheckConstraint("resource IN ('memory', 'compute')", name=op.f("ck_ceiling_resource")),
        sa.CheckConstraint("per_s > 0", name=op.f("ck_ceiling_per_s_positive")),
        sa.CheckConstraint("up_to_bytes >= 0", name=op.f("ck_ceiling_up_to_bytes_not_negative")),
        sa.ForeignKeyConstraint(["run_id"], ["run.run_id"], name=op.f("fk_ceiling_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "position", name=op.f("pk_ceiling")),
    )
    op.create_table(
        "change_point",
        sa.Column("regression_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("commit_id", sa.Integer(), nullable=False),
        sa.Column("previous_commit_id", sa.Integer(), nullable=False),
        sa.Column("case_id", sa.Integer(), nullable=False),
        sa.Column("implementation", sa.Text(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("runner_class", sa.Text(), nullable=False),
        sa.Column("function", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("tensor", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("before", sa.Double(), nullable=True),
        sa.Column("after", sa.Double(), nullable=True),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "verdict IN ('regressed', 'improved', 'unchanged', 'inconclusive')", name=op.f("ck_change_point_verdict")
        ),
        sa.ForeignKeyConstraint(["case_id"], ["case.id"], name=op.f("fk_change_point_case_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["commit_id"], ["commit.id"], name=op.f("fk_change_point_commit_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["previous_commit_id"], ["commit.id"], name=op.f("fk_change_point_previous_commit_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["regression_id"], ["regression.id"], name=op.f("fk_change_point_regression_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("regression_id", "position", name=op.f("pk_change_point")),
    )
    op.create_index(op.f("ix_change_point_case_id"), "change_point", ["case_id"], unique=False)
    op.create_index(op.f("ix_change_point_commit_id"), "change_point", ["commit_id"], unique=False)
    op.create_index(op.f("ix_change_point_previous_commit_id"), "change_point", ["previous_commit_id"], unique=False)
    op.create_table(
        "run_case",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("case_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("flop_count", sa.Double(), nullable=False),
        sa.Column("memory_bytes", sa.Double(), nullable=False),
        sa.CheckConstraint("flop_count >= 0", name=op.f("ck_run_case_flop_count_not_negative")),
        sa.CheckConstraint("memory_bytes >= 0", name=op.f("ck_run_case_memory_bytes_not_negative")),
        sa.ForeignKeyConstraint(["case_id"], ["case.id"], name=op.f("fk_run_case_case_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["run_id"], ["run.run_id"], name=op.f("fk_run_case_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "case_id", name=op.f("pk_run_case")),
    )
    op.create_index(op.f("ix_run_case_case_id"), "run_case", ["case_id"], unique=False)
    op.create_table(
        "accuracy",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("case_id", sa.Integer(), nullable=False),
        sa.Column("implementation", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("executor", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=True),
        sa.CheckConstraint("executor IN ('device', 'interpreter')", name=op.f("ck_accuracy_executor")),
        sa.CheckConstraint(
            _OUTCOME,
            name=op.f("ck_accuracy_outcome"),
        ),
        sa.ForeignKeyConstraint(
            ["run_id", "case_id"],
            ["run_case.run_id", "run_case.case_id"],
            name=op.f("fk_accuracy_run_id_case_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("run_id", "case_id", "implementation", name=op.f("pk_accuracy")),
    )
    op.create_index(op.f("ix_accuracy_case_id"), "accuracy", ["case_id"], unique=False)
    op.create_table(
        "measurement",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("case_id", sa.Integer(), nullable=False),
        sa.Column("implementation", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("timer", sa.Text(), nullable=False),
        sa.Column("cache", sa.Text(), nullable=False),
        sa.Column("launches_per_sample", sa.BigInteger(), nullable=False),
        sa.Column("samples_ns", sa.ARRAY(sa.Double()), nullable=True),
        sa.Column("block_lengths", sa.ARRAY(sa.Integer()), nullable=True),
        sa.Column("block_started_at", sa.ARRAY(sa.DateTime(timezone=True)), nullable=True),
        sa.Column("median_ns", sa.Double(), nullable=True),
        sa.Column("q1_ns", sa.Double(), nullable=True),
        sa.Column("q3_ns", sa.Double(), nullable=True),
        sa.Column("flop_per_s", sa.Double(), nullable=True),
        sa.Column("memory_bytes_per_s", sa.Double(), nullable=True),
        sa.Column("utilisation", sa.Double(), nullable=True),
        sa.Column("bound", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "(outcome = 'ok') = (samples_ns IS NOT NULL)", name=op.f("ck_measurement_samples_only_if_ok")
        ),
        sa.CheckConstraint("bound IS NULL OR bound IN ('memory', 'compute')", name=op.f("ck_measurement_bound")),
        sa.CheckConstraint("cache IN ('hot', 'cold')", name=op.f("ck_measurement_cache")),
        sa.CheckConstraint(
            "outcome = 'ok' OR num_nonnulls(flop_per_s, memory_bytes_per_s, utilisation) = 0",
            name=op.f("ck_measurement_values_only_if_ok"),
        ),
        sa.CheckConstraint(
            _OUTCOME,
            name=op.f("ck_measurement_outcome"),
        ),
        sa.CheckConstraint("timer IN ('perf_counter', 'cuda_event')", name=op.f("ck_measurement_timer")),
        sa.CheckConstraint(
            "cardinality(block_lengths) = cardinality(block_started_at)", name=op.f("ck_measurement_blocks_whole")
        ),
        sa.CheckConstraint("cardinality(samples_ns) > 0", name=op.f("ck_measurement_samples_not_empty")),
        sa.CheckConstraint("launches_per_sample > 0", name=op.f("ck_measurement_launches_per_sample_positive")),
        sa.CheckConstraint(
            "num_nulls(samples_ns, block_lengths, block_started_at, median_ns, q1_ns, q3_ns) IN (0, 6)",
            name=op.f("ck_measurement_samples_whole"),
        ),
        sa.CheckConstraint("q1_ns > 0 AND median_ns > 0 AND q3_ns > 0", name=op.f("ck_measurement_times_positive")),
        sa.ForeignKeyConstraint(
            ["run_id", "case_id"],
            ["run_case.run_id", "run_case.case_id"],
            name=op.f("fk_measurement_run_id_case_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("run_id", "case_id", "implementation", name=op.f("pk_measurement")),
    )
    op.create_index(op.f("ix_measurement_case_id"), "measurement", ["case_id"], unique=False)
    op.create_table(
        "static_fact",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("case_id", sa.Integer(), nullable=False),
        sa.Column("implementation", sa.Text(), nullable=False),
        sa.Column("function", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("configuration", sa.JSON(), nullable=False),
        sa.Column("registers", sa.BigInteger(), nullable=True),
        sa.Column("spilled_registers", sa.BigInteger(), nullable=True),
        sa.Column("local_bytes", sa.BigInteger(), nullable=True),
        sa.Column("shared_bytes", sa.BigInteger(), nullable=True),
        sa.Column("code_bytes", sa.BigInteger(), nullable=True),
        sa.Column("code_hash", sa.Text(), nullable=True),
        sa.CheckConstraint("(outcome = 'ok') = (code_hash IS NOT NULL)", name=op.f("ck_static_fact_code_only_if_ok")),
        sa.CheckConstraint(
            _OUTCOME,
            name=op.f("ck_static_fact_outcome"),
        ),
        sa.CheckConstraint("code_bytes >= 0", name=op.f("ck_static_fact_code_bytes_not_negative")),
        sa.CheckConstraint("local_bytes >= 0", name=op.f("ck_static_fact_local_bytes_not_negative")),
        sa.CheckConstraint("registers >= 0", name=op.f("ck_static_fact_registers_not_negative")),
        sa.CheckConstraint("shared_bytes >= 0", name=op.f("ck_static_fact_shared_bytes_not_negative")),
        sa.CheckConstraint("spilled_registers >= 0", name=op.f("ck_static_fact_spilled_registers_not_negative")),
        sa.ForeignKeyConstraint(
            ["run_id", "case_id"],
            ["run_case.run_id", "run_case.case_id"],
            name=op.f("fk_static_fact_run_id_case_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint(
            "run_id", "case_id", "implementation", "function", "target", name=op.f("pk_static_fact")
        ),
    )
    op.create_index(op.f("ix_static_fact_case_id"), "static_fact", ["case_id"], unique=False)
    op.create_table(
        "tensor_error",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("case_id", sa.Integer(), nullable=False),
        sa.Column("implementation", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("tensor", sa.Text(), nullable=False),
        sa.Column("max_abs_error", sa.Double(), nullable=False),
        sa.Column("rmse_ratio", sa.Double(), nullable=False),
        sa.Column("passed", sa.Boolean(), nullable=False),
        sa.CheckConstraint("max_abs_error >= 0", name=op.f("ck_tensor_error_max_abs_error_not_negative")),
        sa.CheckConstraint("rmse_ratio >= 0", name=op.f("ck_tensor_error_rmse_ratio_not_negative")),
        sa.ForeignKeyConstraint(
            ["run_id", "case_id", "implementation"],
            ["accuracy.run_id", "accuracy.case_id", "accuracy.implementation"],
            name=op.f("fk_tensor_error_run_id_case_id_implementation"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("run_id", "case_id", "implementation", "position", name=op.f("pk_tensor_error")),
    )


def downgrade() -> None:
    op.drop_table("tensor_error")
    op.drop_table("static_fact")
    op.drop_table("measurement")
    op.drop_table("accuracy")
    op.drop_table("run_case")
    op.drop_table("change_point")
    op.drop_table("ceiling")
    op.drop_table("run")
    op.drop_table("regression")
    op.drop_table("commit")
    op.drop_table("case")
    op.drop_table("project")
    op.drop_table("environment")
