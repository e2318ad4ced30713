"""Keep what the cycle model says about compiled code.

Revision: 0019, after 0017
"""

from alembic import op

revision = "0019"
down_revision = "0017"
branch_labels = None
depends_on = None
oldest_code = "0011"


def upgrade() -> None:
    op.get_bind().exec_driver_sql("ALTER TABLE static_fact ADD COLUMN estimate JSON")
