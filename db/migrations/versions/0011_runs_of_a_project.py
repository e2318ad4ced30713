"""The runs of a project side by side in an index, with all that series want to know of them; and how often each token
has asked, for all processes of the API together.

Revision: 0011, after 0010
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_INDEX = "ix_run_project_id_started_at"
_CHOSEN_BY = ("branch", "is_dirty", "pair_id")
_LEADING_ON = ("number", "run_id", "commit_id", "environment_id", "harness_version")


def upgrade() -> None:
    op.add_column("run", sa.Column("project_id", sa.Integer(), nullable=True))
    op.execute("UPDATE run SET project_id = commit.project_id FROM commit WHERE commit.id = run.commit_id")
    op.alter_column("run", "project_id", nullable=False)
    op.create_foreign_key(op.f("fk_run_project_id"), "run", "project", ["project_id"], ["id"], ondelete="CASCADE")
    op.create_index(op.f(_INDEX), "run", ["project_id", "started_at"], postgresql_include=[*_CHOSEN_BY, *_LEADING_ON])
    op.create_table(
        "allowance",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("level", sa.Double(), nullable=False),
        sa.Column("filled_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("level >= 0", name=op.f("ck_allowance_level_not_negative")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_allowance")),
        prefixes=["UNLOGGED"],
    )


def downgrade() -> None:
    op.drop_table("allowance")
    op.drop_index(op.f(_INDEX), "run")
    op.drop_constraint(op.f("fk_run_project_id"), "run", type_="foreignkey")
    op.drop_column("run", "project_id")
