"""Tags and bus bytes of cases, bus bandwidth of measurements, the eager error beside a tensor's own, and what the
machine code consists of.

Revision: 0002, after 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


_COUNTS = (
    "thread_count",
    "accumulation_registers",
    "scalar_registers",
    "spill_store_count",
    "spill_load_count",
    "static_shared_bytes",
    "tensor_memory_columns",
    "instruction_count",
)
_BY_NAME = ("toolchain", "instructions", "compile_ns")


def upgrade() -> None:
    # runs that are stored have no tags; what is stored from now on says so itself
    op.add_column("run_case", sa.Column("tags", sa.ARRAY(sa.Text()), nullable=False, server_default="{}"))
    op.alter_column("run_case", "tags", server_default=None)
    op.add_column("run_case", sa.Column("bus_bytes", sa.Double(), nullable=True))
    op.create_check_constraint(op.f("ck_run_case_bus_bytes_not_negative"), "run_case", "bus_bytes >= 0")
    op.add_column("tensor_error", sa.Column("baseline_rmse_ratio", sa.Double(), nullable=True))
    op.create_check_constraint(
        op.f("ck_tensor_error_baseline_rmse_ratio_not_negative"), "tensor_error", "baseline_rmse_ratio >= 0"
    )
    op.add_column("measurement", sa.Column("bus_bytes_per_s", sa.Double(), nullable=True))
    op.drop_constraint(op.f("ck_measurement_values_only_if_ok"), "measurement")
    op.create_check_constraint(
        op.f("ck_measurement_values_only_if_ok"),
        "measurement",
        "outcome = 'ok' OR num_nonnulls(flop_per_s, memory_bytes_per_s, bus_bytes_per_s, utilisation) = 0",
    )
    for column in _COUNTS:
        op.add_column("static_fact", sa.Column(column, sa.BigInteger(), nullable=True))
        op.create_check_constraint(op.f(f"ck_static_fact_{column}_not_negative"), "static_fact", f"{column} >= 0")
    op.add_column("static_fact", sa.Column("theoretical_occupancy", sa.Double(), nullable=True))
    op.create_check_constraint(
        op.f("ck_static_fact_theoretical_occupancy_not_negative"), "static_fact", "theoretical_occupancy >= 0"
    )
    op.add_column(
        "static_fact", sa.Column("occupancy_limits", sa.ARRAY(sa.Text()), nullable=False, server_default="{}")
    )
    op.alter_column("static_fact", "occupancy_limits", server_default=None)
    for column in _BY_NAME:
        op.add_column("static_fact", sa.Column(column, sa.JSON(), nullable=False, server_default="{}"))
        op.alter_column("static_fact", column, server_default=None)


def downgrade() -> None:
    for column in (*_COUNTS, "theoretical_occupancy", "occupancy_limits", *_BY_NAME):
        op.drop_column("static_fact", column)
    op.drop_constraint(op.f("ck_measurement_values_only_if_ok"), "measurement")
    op.create_check_constraint(
        op.f("ck_measurement_values_only_if_ok"),
        "measurement",
        "outcome = 'ok' OR num_nonnulls(flop_per_s, memory_bytes_per_s, utilisation) = 0",
    )
    op.drop_column("measurement", "bus_bytes_per_s")
    op.drop_column("tensor_error", "baseline_rmse_ratio")
    op.drop_column("run_case", "bus_bytes")
    op.drop_column("run_case", "tags")
