"""Keep the accuracy of a case with other values.

Revision: 0017, after 0018
"""

from alembic import op

revision = "0017"
down_revision = "0018"
branch_labels = None
depends_on = None
oldest_code = "0011"


def upgrade() -> None:
    op.get_bind().exec_driver_sql("ALTER TABLE tensor_error ADD COLUMN regime TEXT")
