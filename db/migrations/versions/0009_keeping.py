"""What a run said of its commit, what was removed of it on purpose, and a way to find deeds by their time.

Revision: 0009, after 0008
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run", sa.Column("as_sent", sa.JSON(none_as_null=True), nullable=True))
    op.add_column("run", sa.Column("samples_pruned_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("run", sa.Column("telemetry_pruned_at", sa.DateTime(timezone=True), nullable=True))
    op.create_index(op.f("ix_audit_entry_at"), "audit_entry", ["at"])


def downgrade() -> None:
    op.drop_index(op.f("ix_audit_entry_at"), "audit_entry")
    op.drop_column("run", "telemetry_pruned_at")
    op.drop_column("run", "samples_pruned_at")
    op.drop_column("run", "as_sent")
