"""Files that belong to runs: what a record names, and contents that are kept once.

Revision: 0007, after 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "artefact_content",
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("stored_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.CheckConstraint("sha256 ~ '^[0-9a-f]{64}$'", name=op.f("ck_artefact_content_sha256")),
        sa.CheckConstraint("size_bytes >= 0", name=op.f("ck_artefact_content_size_bytes_not_negative")),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_artefact_content")),
    )
    op.create_table(
        "artefact_chunk",
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("packed", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint("position >= 0", name=op.f("ck_artefact_chunk_position_not_negative")),
        sa.ForeignKeyConstraint(
            ["sha256"], ["artefact_content.sha256"], name=op.f("fk_artefact_chunk_sha256"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("sha256", "position", name=op.f("pk_artefact_chunk")),
    )
    # it is packed already: Postgres need not try
    op.execute("ALTER TABLE artefact_chunk ALTER COLUMN packed SET STORAGE EXTERNAL")
    op.create_table(
        "run_artefact",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("content_sha256", sa.Text(), nullable=True),
        sa.CheckConstraint("content_sha256 = sha256", name=op.f("ck_run_artefact_content_is_what_is_named")),
        sa.CheckConstraint("size_bytes >= 0", name=op.f("ck_run_artefact_size_bytes_not_negative")),
        sa.ForeignKeyConstraint(["run_id"], ["run.run_id"], name=op.f("fk_run_artefact_run_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["content_sha256"], ["artefact_content.sha256"], name=op.f("fk_run_artefact_content_sha256")
        ),
        sa.PrimaryKeyConstraint("run_id", "name", name=op.f("pk_run_artefact")),
    )
    op.create_index(op.f("ix_run_artefact_content_sha256"), "run_artefact", ["content_sha256"])
    op.execute(
        """
        INSERT INTO run_artefact (run_id, name, position, kind, sha256, size_bytes)
        SELECT run_id, one ->> 'name', ordinality - 1, one ->> 'kind', one ->> 'sha256', (one ->> 'size_bytes')::bigint
        FROM run, json_array_elements(unread_fields -> 'artefacts') WITH ORDINALITY AS named (one, ordinality)
        """
    )
    op.execute(
        """
        UPDATE run SET unread_fields = (unread_fields::jsonb - 'artefacts')::json
        WHERE unread_fields -> 'artefacts' IS NOT NULL
        """
    )


def downgrade() -> None:
    # an older version keeps what it does not know of a record beside the run
    op.execute(
        """
        UPDATE run SET unread_fields = (unread_fields::jsonb || jsonb_build_object('artefacts', (
            SELECT jsonb_agg(
                jsonb_build_object('name', name, 'kind', kind, 'sha256', sha256, 'size_bytes', size_bytes)
                ORDER BY position
            ) FROM run_artefact WHERE run_artefact.run_id = run.run_id
        )))::json WHERE EXISTS (SELECT FROM run_artefact WHERE run_artefact.run_id = run.run_id)
        """
    )
    for table in ("run_artefact", "artefact_chunk", "artefact_content"):
        op.drop_table(table)
