"""${message}.

Revision: ${up_revision}, after ${down_revision or "nothing"}
"""

from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}
# the oldest revision whose code works on this schema; the first of them, unless something is removed
oldest_code = ${repr(down_revision)}


def upgrade() -> None:
    op.execute(...)
