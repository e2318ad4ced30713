"""Bisections: asked for, running and done, with their commits and steps.

Revision: 0006, after 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_ANSWER = "first_sha, last_sha, confidence, relative_change, change_low, change_high"
_STATES = "'requested', 'running', 'found', 'narrowed', 'undecided', 'no_change', 'failed'"


def upgrade() -> None:
    op.create_table(
        "bisection",
        sa.Column("bisection_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("case_id", sa.Text(), nullable=False),
        sa.Column("implementation", sa.Text(), nullable=True),
        sa.Column("runner_class", sa.Text(), nullable=True),
        sa.Column("good_sha", sa.Text(), nullable=False),
        sa.Column("bad_sha", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("requested_by", sa.Text(), nullable=False),
        sa.Column("regression_id", sa.Uuid(), nullable=True),
        sa.Column("requested_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("claim_id", sa.Uuid(), nullable=True),
        sa.Column("leased_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("measurement_count", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("note", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("first_sha", sa.Text(), nullable=True),
        sa.Column("last_sha", sa.Text(), nullable=True),
        sa.Column("confidence", sa.Double(), nullable=True),
        sa.Column("relative_change", sa.Double(), nullable=True),
        sa.Column("change_low", sa.Double(), nullable=True),
        sa.Column("change_high", sa.Double(), nullable=True),
        sa.CheckConstraint(f"state IN ({_STATES})", name=op.f("ck_bisection_state")),
        sa.CheckConstraint(
            "(state = 'running') = (claim_id IS NOT NULL)", name=op.f("ck_bisection_claimed_while_running")
        ),
        sa.CheckConstraint("(claim_id IS NULL) = (leased_until IS NULL)", name=op.f("ck_bisection_claim_has_lease")),
        sa.CheckConstraint(
            "(state IN ('requested', 'running')) = (finished_at IS NULL)", name=op.f("ck_bisection_finished_when_over")
        ),
        sa.CheckConstraint(
            "(first_sha IS NULL) = (state NOT IN ('found', 'narrowed'))", name=op.f("ck_bisection_answer_if_found")
        ),
        sa.CheckConstraint(f"num_nulls({_ANSWER}) IN (0, 6)", name=op.f("ck_bisection_answer_whole")),
        sa.CheckConstraint("confidence BETWEEN 0 AND 1", name=op.f("ck_bisection_confidence_is_a_probability")),
        sa.CheckConstraint("measurement_count >= 0", name=op.f("ck_bisection_measurement_count_not_negative")),
        sa.ForeignKeyConstraint(
            ["project_id"], ["project.id"], name=op.f("fk_bisection_project_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("bisection_id", name=op.f("pk_bisection")),
    )
    op.create_index(
        "uq_bisection_unfinished",
        "bisection",
        ["project_id", "case_id", "implementation", "runner_class", "good_sha", "bad_sha"],
        unique=True,
        postgresql_where=sa.text("state IN ('requested', 'running')"),
        postgresql_nulls_not_distinct=True,
    )
    op.create_index(op.f("ix_bisection_project_id_requested_at"), "bisection", ["project_id", "requested_at"])
    op.create_table(
        "bisection_commit",
        sa.Column("bisection_id", sa.Uuid(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("sha", sa.Text(), nullable=False),
        sa.Column("first_parent_count", sa.Integer(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("committed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("probability", sa.Double(), nullable=False),
        sa.Column("standing", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("pair_count", sa.Integer(), nullable=False),
        sa.Column("relative_change", sa.Double(), nullable=True),
        sa.CheckConstraint(
            "standing IN ('open', 'measured', 'same', 'skipped')", name=op.f("ck_bisection_commit_standing")
        ),
        *_numbers_of("bisection_commit"),
    )
    op.create_table(
        "bisection_step",
        sa.Column("bisection_id", sa.Uuid(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("sha", sa.Text(), nullable=False),
        sa.Column("pair_count", sa.Integer(), nullable=False),
        sa.Column("relative_change", sa.Double(), nullable=True),
        sa.Column("probability", sa.Double(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=False),
        *_numbers_of("bisection_step"),
    )


def _numbers_of(table: str) -> list[sa.Constraint]:
    return [
        sa.CheckConstraint("probability BETWEEN 0 AND 1", name=op.f(f"ck_{table}_probability")),
        sa.CheckConstraint("pair_count >= 0", name=op.f(f"ck_{table}_pair_count_not_negative")),
        sa.ForeignKeyConstraint(
            ["bisection_id"], ["bisection.bisection_id"], name=op.f(f"fk_{table}_bisection_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("bisection_id", "position", name=op.f(f"pk_{table}")),
    ]


def downgrade() -> None:
    for table in ("bisection_step", "bisection_commit", "bisection"):
        op.drop_table(table)
