"""What was seen of the device: clocks and their mode, telemetry, energy, memory, autotuning, counters; and where the
time of a run went.

Revision: 0003, after 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_TIMERS = ("cupti", "cuda_graph", "cuda_event", "perf_counter")
_CACHES = ("hot", "cold", "rotated")
_VALUES = "flop_per_s, memory_bytes_per_s, bus_bytes_per_s, utilisation"


def upgrade() -> None:
    op.add_column("environment", sa.Column("clock_mode", sa.Text(), nullable=False, server_default="free"))
    op.alter_column("environment", "clock_mode", server_default=None)
    op.create_check_constraint(op.f("ck_environment_clock_mode"), "environment", "clock_mode IN ('free', 'locked')")
    op.add_column("environment", sa.Column("locked_sm_clock_mhz", sa.Double(), nullable=True))
    for column in ("is_persistence_on", "is_ecc_on", "is_mig_on"):
        op.add_column("environment", sa.Column(column, sa.Boolean(), nullable=True))

    op.add_column("ceiling", sa.Column("source", sa.Text(), nullable=False, server_default="measured"))
    op.alter_column("ceiling", "source", server_default=None)
    op.create_check_constraint(op.f("ck_ceiling_source"), "ceiling", "source IN ('measured', 'datasheet')")

    _allow("timer", _TIMERS)
    _allow("cache", _CACHES)
    op.add_column("measurement", sa.Column("block_facts", sa.JSON(), nullable=True))
    # of a run that is stored nothing of this is known
    op.execute("UPDATE measurement SET block_facts = '[]' WHERE samples_ns IS NOT NULL")
    op.add_column("measurement", sa.Column("memory", sa.JSON(none_as_null=True), nullable=True))
    op.add_column("measurement", sa.Column("autotuning", sa.JSON(), nullable=False, server_default="[]"))
    op.alter_column("measurement", "autotuning", server_default=None)
    op.add_column("measurement", sa.Column("joules_per_launch", sa.Double(), nullable=True))
    _only_if_ok(f"{_VALUES}, joules_per_launch")

    op.add_column("run", sa.Column("telemetry", sa.JSON(none_as_null=True), nullable=True))
    op.add_column("run", sa.Column("spent_ns", sa.JSON(), nullable=False, server_default="{}"))
    op.alter_column("run", "spent_ns", server_default=None)

    op.create_table(
        "counters",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("case_id", sa.Integer(), nullable=False),
        sa.Column("implementation", sa.Text(), nullable=False),
        sa.Column("function", sa.Text(), nullable=False),
        sa.Column("launch_index", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("values", sa.JSON(), nullable=False),
        sa.Column("findings", sa.JSON(), nullable=False),
        sa.CheckConstraint("source IN ('ncu')", name=op.f("ck_counters_source")),
        sa.CheckConstraint("launch_index >= 0", name=op.f("ck_counters_launch_index_not_negative")),
        sa.ForeignKeyConstraint(
            ["run_id", "case_id"],
            ["run_case.run_id", "run_case.case_id"],
            name=op.f("fk_counters_run_id_case_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint(
            "run_id", "case_id", "implementation", "function", "launch_index", name=op.f("pk_counters")
        ),
    )
    op.create_index(op.f("ix_counters_case_id"), "counters", ["case_id"])

    # judged anew from the runs whenever a project is judged
    for column, kind, default in (
        ("suspects", sa.JSON(), "[]"),
        ("family", sa.Text(), ""),
        ("is_alert", sa.Boolean(), "false"),
    ):
        op.add_column("regression", sa.Column(column, kind, nullable=False, server_default=default))
        op.alter_column("regression", column, server_default=None)
    for column in ("typical_change", "change_spread"):
        op.add_column("regression", sa.Column(column, sa.Double(), nullable=True))
    op.add_column("change_point", sa.Column("is_gradual", sa.Boolean(), nullable=False, server_default="false"))
    op.alter_column("change_point", "is_gradual", server_default=None)


def downgrade() -> None:
    op.drop_column("change_point", "is_gradual")
    for column in ("suspects", "family", "typical_change", "change_spread", "is_alert"):
        op.drop_column("regression", column)
    op.drop_table("counters")
    op.drop_column("run", "spent_ns")
    op.drop_column("run", "telemetry")
    _only_if_ok(_VALUES)
    for column in ("joules_per_launch", "autotuning", "memory", "block_facts"):
        op.drop_column("measurement", column)
    # an older version knows no such timer or cache: what it cannot read goes, and its record file can be ingested again
    op.execute(
        "DELETE FROM run WHERE run_id IN "
        "(SELECT run_id FROM measurement WHERE timer IN ('cupti', 'cuda_graph') OR cache = 'rotated')"
    )
    _allow("cache", ("hot", "cold"))
    _allow("timer", ("perf_counter", "cuda_event"))
    op.drop_column("ceiling", "source")
    for column in ("clock_mode", "locked_sm_clock_mhz", "is_persistence_on", "is_ecc_on", "is_mig_on"):
        op.drop_column("environment", column)


def _allow(column: str, values: tuple[str, ...]) -> None:
    name = op.f(f"ck_measurement_{column}")
    op.drop_constraint(name, "measurement")
    allowed = ", ".join(f"'{value}'" for value in values)
    op.create_check_constraint(name, "measurement", f"{column} IN ({allowed})")


def _only_if_ok(columns: str) -> None:
    name = op.f("ck_measurement_values_only_if_ok")
    op.drop_constraint(name, "measurement")
    op.create_check_constraint(name, "measurement", f"outcome = 'ok' OR num_nonnulls({columns}) = 0")
