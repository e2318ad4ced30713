"""Give pairs that people asked for to watches of the queue, and keep why nothing was measured.

Revision: 0022, after 0021
"""

from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None
oldest_code = "0011"

_STATEMENTS = (
    "ALTER TABLE agenda_job ADD COLUMN note TEXT",
    "ALTER TABLE queued_job ADD COLUMN measured_class TEXT",
)


def upgrade() -> None:
    connection = op.get_bind()
    for statement in _STATEMENTS:
        connection.exec_driver_sql(statement)
