"""By what runs are alike, so that the next finds its cases, series and machine code by one that was before.

Revision: 0016, after 0015
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_IDENTITIES = "ix_run_project_id_identity_sha256_number"
_FACTS = "ix_run_project_id_facts_sha256_number"
_CHECKS = {
    "identity_sha256": "identity_is_a_sha256",
    "facts_sha256": "facts_are_a_sha256",
    "flags_sha256": "flags_are_a_sha256",
}


def upgrade() -> None:
    # runs that are there have none: the first of their kind that comes is looked up in full
    for column, check in _CHECKS.items():
        op.add_column("run", sa.Column(column, sa.LargeBinary()))
        op.create_check_constraint(op.f(f"ck_run_{check}"), "run", f"octet_length({column}) = 32")
    op.create_index(op.f(_IDENTITIES), "run", ["project_id", "identity_sha256", "number"])
    op.create_index(
        op.f(_FACTS),
        "run",
        ["project_id", "facts_sha256", "number"],
        postgresql_where=sa.text("facts_sha256 IS NOT NULL"),
    )


def downgrade() -> None:
    for index in (_IDENTITIES, _FACTS):
        op.drop_index(op.f(index), "run")
    for column in _CHECKS:
        op.drop_column("run", column)
