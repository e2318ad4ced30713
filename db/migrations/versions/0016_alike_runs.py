"""By what runs are alike, so that the next finds its cases and series by one that was before.

Revision: 0016, after 0015
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_INDEX = "ix_run_project_id_identity_sha256_number"


def upgrade() -> None:
    # runs that are there have none: the first of their kind that comes is looked up in full
    for column, check in (("identity_sha256", "identity_is_a_sha256"), ("flags_sha256", "flags_are_a_sha256")):
        op.add_column("run", sa.Column(column, sa.LargeBinary()))
        op.create_check_constraint(op.f(f"ck_run_{check}"), "run", f"octet_length({column}) = 32")
    op.create_index(op.f(_INDEX), "run", ["project_id", "identity_sha256", "number"])


def downgrade() -> None:
    op.drop_index(op.f(_INDEX), "run")
    for column in ("identity_sha256", "flags_sha256"):
        op.drop_column("run", column)
