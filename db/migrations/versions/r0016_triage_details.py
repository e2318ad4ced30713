"""Keep who works on a regression, its issue, and until when it is snoozed.

Revision: 0016, after 0013
"""

from alembic import op

revision = "0016"
down_revision = "0013"
branch_labels = None
depends_on = None
oldest_code = "0011"

_TRIAGE = """
    ALTER TABLE triage
        ADD COLUMN assignee TEXT,
        ADD COLUMN issue_url TEXT,
        ADD COLUMN snoozed_until TIMESTAMP WITH TIME ZONE,
        ADD COLUMN snoozed_until_sha TEXT
"""


def upgrade() -> None:
    op.get_bind().exec_driver_sql(_TRIAGE)
