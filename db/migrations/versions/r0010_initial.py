"""Create all tables and views.

Revision: 0010, after nothing
"""

from pathlib import Path

from alembic import op

revision = "0010"
down_revision = None
branch_labels = None
depends_on = None
oldest_code = "0010"


def upgrade() -> None:
    statements = Path(__file__).with_suffix(".sql").read_text()
    for statement in statements.split(";\n\n"):
        op.get_bind().exec_driver_sql(statement.rstrip(";\n"))
