"""Alerts, the outbox of what they tell, and decisions that follow a regression from judgement to judgement.

Revision: 0005, after 0004
"""

from uuid import UUID, uuid5

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_NAMESPACE = UUID("6f1b0f5e-5f0e-4a53-9f55-2f6d1b6f6a10")
_STATES_BEFORE = "'new', 'acknowledged', 'investigating', 'accepted', 'fixed', 'invalid'"
_STATES = "'new', 'acknowledged', 'expected', 'fixed', 'invalid'"

_DECIDED_WHOLE = (
    "num_nulls(person, reason, changed_at) = 0 OR (state = 'new' AND num_nonnulls(person, reason, changed_at) = 0)"
)


def upgrade() -> None:
    _follow_regressions()
    op.create_table(
        "alert",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("episode", sa.Integer(), nullable=False),
        sa.Column("message", sa.JSON(), nullable=False),
        sa.Column("regression_id", sa.Uuid(), nullable=True),
        sa.Column("fired_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("told_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("escalated_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("acknowledged_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("acknowledged_by", sa.Text(), nullable=True),
        sa.Column("acknowledged_reason", sa.Text(), nullable=True),
        sa.Column("resolved_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("severity IN ('info', 'warning', 'critical')", name=op.f("ck_alert_severity")),
        sa.CheckConstraint("state IN ('firing', 'acknowledged', 'resolved')", name=op.f("ck_alert_state")),
        sa.CheckConstraint("episode > 0", name=op.f("ck_alert_episode_positive")),
        sa.CheckConstraint(
            "(state = 'resolved') = (resolved_at IS NOT NULL)", name=op.f("ck_alert_resolved_at_a_time")
        ),
        sa.CheckConstraint(
            "num_nulls(acknowledged_at, acknowledged_by, acknowledged_reason) IN (0, 3)",
            name=op.f("ck_alert_acknowledged_whole"),
        ),
        sa.CheckConstraint(
            "state <> 'acknowledged' OR acknowledged_at IS NOT NULL", name=op.f("ck_alert_acknowledged_at_a_time")
        ),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_alert_project_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alert")),
        sa.UniqueConstraint("project_id", "rule", "cause", name=op.f("uq_alert_project_id_rule_cause")),
    )
    op.create_table(
        "delivery",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("alert_id", sa.BigInteger(), nullable=False),
        sa.Column("episode", sa.Integer(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("key", sa.Uuid(), nullable=False),
        sa.Column("message", sa.JSON(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("is_uncertain", sa.Boolean(), nullable=False),
        sa.Column("attempt_count", sa.Integer(), nullable=False),
        sa.Column("attempt_id", sa.Uuid(), nullable=True),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.CheckConstraint("event IN ('fired', 'escalated', 'resolved')", name=op.f("ck_delivery_event")),
        sa.CheckConstraint("state IN ('waiting', 'sending', 'sent', 'failed')", name=op.f("ck_delivery_state")),
        sa.CheckConstraint("(state = 'sent') = (sent_at IS NOT NULL)", name=op.f("ck_delivery_sent_at_a_time")),
        sa.CheckConstraint(
            "state <> 'sending' OR attempt_id IS NOT NULL", name=op.f("ck_delivery_sending_is_an_attempt")
        ),
        sa.CheckConstraint("attempt_count >= 0", name=op.f("ck_delivery_attempt_count_not_negative")),
        sa.ForeignKeyConstraint(["alert_id"], ["alert.id"], name=op.f("fk_delivery_alert_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_delivery")),
        sa.UniqueConstraint("key", name=op.f("uq_delivery_key")),
        sa.UniqueConstraint(
            *("alert_id", "episode", "event", "channel"), name=op.f("uq_delivery_alert_id_episode_event_channel")
        ),
    )
    op.create_index(
        op.f("ix_delivery_next_attempt_at"),
        "delivery",
        ["next_attempt_at"],
        postgresql_where=sa.text("state IN ('waiting', 'sending')"),
    )


def _follow_regressions() -> None:
    op.add_column("regression", sa.Column("recovered_commit_id", sa.Integer(), nullable=True))
    op.create_foreign_key(
        *(op.f("fk_regression_recovered_commit_id"), "regression", "commit", ["recovered_commit_id"], ["id"]),
        ondelete="CASCADE",
    )
    op.drop_constraint(op.f("ck_triage_state"), "triage", type_="check")
    # who looks at it has seen it; what is accepted is expected
    op.execute("UPDATE triage SET state = 'acknowledged' WHERE state = 'investigating'")
    op.execute("UPDATE triage SET state = 'expected' WHERE state = 'accepted'")
    op.create_check_constraint(op.f("ck_triage_state"), "triage", f"state IN ({_STATES})")
    op.add_column("triage", sa.Column("regression_id", sa.Uuid(), nullable=True))
    op.add_column("triage", sa.Column("series", sa.ARRAY(sa.Text()), nullable=False, server_default="{}"))
    op.add_column("triage", sa.Column("is_found", sa.Boolean(), nullable=False, server_default=sa.true()))
    op.add_column("triage", sa.Column("newest_place", sa.BigInteger(), nullable=False, server_default="0"))
    _name_regressions()
    op.alter_column("triage", "regression_id", nullable=False)
    for column in ("series", "is_found", "newest_place"):
        op.alter_column("triage", column, server_default=None)
    op.create_check_constraint(op.f("ck_triage_decided_whole"), "triage", _DECIDED_WHOLE)
    op.drop_constraint(op.f("pk_triage"), "triage", type_="primary")
    op.create_primary_key(op.f("pk_triage"), "triage", ["regression_id"])
    op.create_index(
        op.f("ix_triage_project_id_sha_kernel_verdict"),
        "triage",
        ["project_id", "sha", "kernel", "verdict"],
        unique=True,
        postgresql_where=sa.text("is_found"),
    )


def _name_regressions() -> None:
    """The ids by which they were known so far; and a row for each that was judged, decided or not."""
    connection = op.get_bind()
    op.alter_column("triage", "person", nullable=True)
    op.alter_column("triage", "reason", nullable=True)
    op.alter_column("triage", "changed_at", nullable=True, server_default=None)
    op.execute(
        "UPDATE triage SET is_found = EXISTS (SELECT FROM regression JOIN commit ON commit.id = regression.commit_id "
        "WHERE (commit.project_id, commit.sha, regression.kernel, regression.verdict) "
        "= (triage.project_id, triage.sha, triage.kernel, triage.verdict))"
    )
    op.execute(
        "INSERT INTO triage (project_id, sha, kernel, verdict, state) "
        "SELECT commit.project_id, commit.sha, regression.kernel, regression.verdict, 'new' "
        "FROM regression JOIN commit ON commit.id = regression.commit_id ON CONFLICT DO NOTHING"
    )
    keys = sa.text(
        "SELECT project.id, project.name, sha, kernel, verdict FROM triage JOIN project ON project.id = project_id"
    )
    named = sa.text(
        "UPDATE triage SET regression_id = :regression_id "
        "WHERE project_id = :project_id AND sha = :sha AND kernel = :kernel AND verdict = :verdict"
    )
    for project_id, *key in connection.execute(keys).all():
        _, sha, kernel, verdict = key
        regression_id = uuid5(_NAMESPACE, "\n".join(key))
        of_key = {"project_id": project_id, "sha": sha, "kernel": kernel, "verdict": verdict}
        connection.execute(named, {"regression_id": regression_id, **of_key})


def downgrade() -> None:
    op.drop_table("delivery")
    op.drop_table("alert")
    op.drop_index(op.f("ix_triage_project_id_sha_kernel_verdict"), "triage")
    # an older version knows a decision by where it was last found, and none about what nobody decided
    op.execute("DELETE FROM triage WHERE NOT is_found OR state = 'new'")
    op.drop_constraint(op.f("ck_triage_decided_whole"), "triage", type_="check")
    for column in ("person", "reason", "changed_at"):
        op.alter_column("triage", column, nullable=False)
    op.alter_column("triage", "changed_at", server_default=sa.func.now())
    op.drop_constraint(op.f("pk_triage"), "triage", type_="primary")
    op.create_primary_key(op.f("pk_triage"), "triage", ["project_id", "sha", "kernel", "verdict"])
    for column in ("newest_place", "is_found", "series", "regression_id"):
        op.drop_column("triage", column)
    op.drop_constraint(op.f("ck_triage_state"), "triage", type_="check")
    op.execute("UPDATE triage SET state = 'accepted' WHERE state = 'expected'")
    op.create_check_constraint(op.f("ck_triage_state"), "triage", f"state IN ({_STATES_BEFORE})")
    op.drop_constraint(op.f("fk_regression_recovered_commit_id"), "regression", type_="foreignkey")
    op.drop_column("regression", "recovered_commit_id")
