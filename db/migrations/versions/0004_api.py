"""Who may do what, and who did what: tokens, trusted repositories, triage, the audit trail; and what is judged.

Revision: 0004, after 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "token",
        sa.Column("token_id", sa.Text(), nullable=False),
        sa.Column("secret_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=True),
        sa.Column("scopes", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("is_quarantined", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("octet_length(secret_sha256) = 32", name=op.f("ck_token_secret_is_a_sha256")),
        sa.CheckConstraint("cardinality(scopes) > 0", name=op.f("ck_token_scopes_not_empty")),
        sa.CheckConstraint("scopes <@ ARRAY['ingest', 'read', 'triage', 'admin']", name=op.f("ck_token_scopes")),
        sa.CheckConstraint("expires_at > created_at", name=op.f("ck_token_expires_later")),
        sa.PrimaryKeyConstraint("token_id", name=op.f("pk_token")),
    )
    op.create_table(
        "trusted_repository",
        sa.Column("repository", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("refs", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.CheckConstraint("cardinality(refs) > 0", name=op.f("ck_trusted_repository_refs_not_empty")),
        sa.PrimaryKeyConstraint("repository", "project", name=op.f("pk_trusted_repository")),
    )
    op.create_table(
        "triage",
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("sha", sa.Text(), nullable=False),
        sa.Column("kernel", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.CheckConstraint(
            "verdict IN ('regressed', 'improved', 'unchanged', 'inconclusive')", name=op.f("ck_triage_verdict")
        ),
        sa.CheckConstraint(
            "state IN ('new', 'acknowledged', 'investigating', 'accepted', 'fixed', 'invalid')",
            name=op.f("ck_triage_state"),
        ),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_triage_project_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("project_id", "sha", "kernel", "verdict", name=op.f("pk_triage")),
    )
    op.create_table(
        "audit_entry",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("person", sa.Text(), nullable=True),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=True),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("before", sa.Text(), nullable=True),
        sa.Column("after", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_entry")),
    )
    op.create_index(op.f("ix_audit_entry_project_id"), "audit_entry", ["project", "id"])
    op.create_table(
        "judging",
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("judged_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_judging_project_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("project_id", name=op.f("pk_judging")),
    )


def downgrade() -> None:
    # an older version would take records in quarantine for those of a project
    op.execute("DELETE FROM project WHERE name LIKE '%?quarantine'")
    for table in ("judging", "audit_entry", "triage", "trusted_repository", "token"):
        op.drop_table(table)
