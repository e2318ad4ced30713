"""Parents of commits that first came from a shallow clone, from the run that knew most of them.

Revision: 0015, after 0014
"""

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_SAID = "as_sent -> 'commit' -> 'parents'"


def upgrade() -> None:
    # the next judgement of each project says which runs their branch has left, by what is known now
    op.execute(
        f"""
        UPDATE commit SET parents = said.parents
        FROM (
            SELECT DISTINCT ON (commit_id) commit_id, ARRAY(SELECT json_array_elements_text({_SAID})) AS parents
            FROM run WHERE json_array_length({_SAID}) > 0
            ORDER BY commit_id, json_array_length({_SAID}) DESC, ingested_at, run_id
        ) said
        WHERE said.commit_id = commit.id AND cardinality(said.parents) > cardinality(commit.parents)
        """
    )


def downgrade() -> None:
    """What is known of commits stays known."""
