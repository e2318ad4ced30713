"""Create all tables of the models and the views, and set storage options.

Revision: 0010, after nothing
"""

from alembic import op

from roofwatch.db.schema import Base
from roofwatch.db.schema.views import VIEWS

# there is no release yet: a changed table changes this, and a store with another revision is refused
revision = "0010"
down_revision = None
branch_labels = None
depends_on = None

COMPRESSED = {"artefact_chunk": "packed", "sample_set": "content"}
"""Columns with compressed values."""


def upgrade() -> None:
    Base.metadata.create_all(op.get_bind(), checkfirst=False)
    for table, column in COMPRESSED.items():
        op.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET STORAGE EXTERNAL")
    for view in VIEWS:
        op.execute(view)
