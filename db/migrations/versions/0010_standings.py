"""How far the series of each project are judged, so that a new run is judged without reading their history.

Revision: 0010, after 0009
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "judged_history",
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("run_numbers", sa.ARRAY(sa.Integer()), nullable=False),
        sa.Column("places", sa.ARRAY(sa.BigInteger()), nullable=False),
        sa.Column("nights", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["project.id"], name=op.f("fk_judged_history_project_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("project_id", name=op.f("pk_judged_history")),
    )
    op.create_table(
        "standing",
        sa.Column("case_id", sa.Integer(), nullable=False),
        sa.Column("implementation", sa.Text(), nullable=False),
        sa.Column("runner_classes", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("states", sa.LargeBinary(), nullable=False),
        sa.Column("findings", sa.JSON(none_as_null=True), nullable=True),
        sa.ForeignKeyConstraint(["case_id"], ["case.id"], name=op.f("fk_standing_case_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("case_id", "implementation", name=op.f("pk_standing")),
    )


def downgrade() -> None:
    op.drop_table("standing")
    op.drop_table("judged_history")
