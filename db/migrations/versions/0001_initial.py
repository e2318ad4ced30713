"""Create all tables of the models, and the partitions' schema, storage options and a trigger.

Revision: 0001, after nothing
"""

from alembic import op

from roofwatch.db.schema.every import Base
from roofwatch.db.schema.measurements import PARTITION_SCHEMA, PARTITIONED

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

COMPRESSED = {"artefact_chunk": "packed", "sample_set": "content"}
"""Columns with compressed values."""


def upgrade() -> None:
    Base.metadata.create_all(op.get_bind(), checkfirst=False)
    op.execute(f"CREATE SCHEMA {PARTITION_SCHEMA}")
    for table, column in COMPRESSED.items():
        op.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET STORAGE EXTERNAL")
    # instead of foreign keys, which are checked row by row
    deletions = "".join(
        f"DELETE FROM {table} WHERE measured_on = OLD.measured_on AND run_number = OLD.number; "
        for table in PARTITIONED
    )
    op.execute(
        "CREATE FUNCTION delete_results_of_run() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN {deletions} RETURN NULL; END $$"
    )
    op.execute(
        "CREATE TRIGGER delete_results AFTER DELETE ON run FOR EACH ROW EXECUTE FUNCTION delete_results_of_run()"
    )
