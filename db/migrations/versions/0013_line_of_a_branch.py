"""Which runs measured a commit that is no longer on the line of its branch, beside what series want to know of a run;
and the requests that were done, by the names that their clients gave them.

Revision: 0013, after 0012
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_INDEX = "ix_run_project_id_started_at"
_CHOSEN_BY = ("branch", "is_dirty", "pair_id")
_LEADING_ON = ("number", "run_id", "commit_id", "environment_id", "harness_version")


def upgrade() -> None:
    # the next judgement of each project says of which runs it is so
    op.add_column("run", sa.Column("is_unreachable", sa.Boolean(), server_default=sa.false(), nullable=False))
    _index(*_CHOSEN_BY, "is_unreachable", *_LEADING_ON)
    op.create_table(
        "idempotency_key",
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("request_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("done_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("octet_length(request_sha256) = 32", name=op.f("ck_idempotency_key_request_is_a_sha256")),
        sa.PrimaryKeyConstraint("actor", "key", name=op.f("pk_idempotency_key")),
    )
    op.create_index(op.f("ix_idempotency_key_done_at"), "idempotency_key", ["done_at"])


def downgrade() -> None:
    op.drop_table("idempotency_key")
    _index(*_CHOSEN_BY, *_LEADING_ON)
    op.drop_column("run", "is_unreachable")


def _index(*included: str) -> None:
    op.drop_index(op.f(_INDEX), "run")
    op.create_index(op.f(_INDEX), "run", ["project_id", "started_at"], postgresql_include=list(included))
