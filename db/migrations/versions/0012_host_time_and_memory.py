"""What the host spends on a launch, and the most memory that one takes, beside each time.

Both are added behind the last column: Postgres then rewrites no row, however many there are, and a row that has them is
no larger than it would be in any other order. What was stored before has neither; its records still do.

Revision: 0012, after 0011
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_VALUES = ("host_ns", "peak_allocated_bytes")
_FLAGS = ("has_host_time", "has_memory")
_ONLY_IF_OK = "ck_measurement_values_only_if_ok"


def upgrade() -> None:
    for flag in _FLAGS:
        op.add_column("series", sa.Column(flag, sa.Boolean(), nullable=False, server_default=sa.false()))
        op.alter_column("series", flag, server_default=None)
    for value in _VALUES:
        op.add_column("measurement", sa.Column(value, sa.REAL(), nullable=True))
        name = op.f(f"ck_measurement_{value}_not_negative")
        op.create_check_constraint(name, "measurement", f"{value} >= 0")
    _values_only_if_ok("utilisation, joules_per_launch, host_ns, peak_allocated_bytes")


def downgrade() -> None:
    _values_only_if_ok("utilisation, joules_per_launch")
    for value in _VALUES:
        op.drop_column("measurement", value)
    for flag in _FLAGS:
        op.drop_column("series", flag)


def _values_only_if_ok(values: str) -> None:
    name = op.f(_ONLY_IF_OK)
    op.drop_constraint(name, "measurement", type_="check")
    op.create_check_constraint(name, "measurement", f"outcome = 0 OR num_nonnulls({values}) = 0")
