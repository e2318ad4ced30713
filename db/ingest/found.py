"""What the store has of a run, and of what it shares with others, asked at once: nearly always that is all of it."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, text

from roofwatch.collector.record.record import Commit, RunRecord
from roofwatch.db.ingest.shared_rows import environment_fingerprint, in_utc
from roofwatch.db.schema.partitions import LACKING, partitions_for

_LAST_NUMBER = 2**31 - 1
# Asked for equal runs, Postgres expects one soon in any order where most are alike, and goes through all of them if
# there is none. So it is asked for the last run up to a place, which is in one index alone, and that one is compared.
_FIND = text(
    f"""
    SELECT run.content_hash, project.id, environment.id, commit.id, commit.first_parent_count,
        cardinality(commit.parents),
        CASE WHEN run.content_hash IS NULL THEN nextval(pg_get_serial_sequence('run', 'number')) END,
        now(), {LACKING}, alike.case_version_ids, alike.series_ids, alike.flags_sha256,
        ARRAY(
            SELECT version.case_id
            FROM unnest(alike.case_version_ids) WITH ORDINALITY listed (id, place)
            JOIN case_version version ON version.id = listed.id
            ORDER BY place
        ),
        ARRAY(
            SELECT static_fact_id FROM compilation
            WHERE run_number = compiled.number AND measured_on = compiled.measured_on
            ORDER BY position
        )
    FROM (SELECT) AS one
    LEFT JOIN run ON run.run_id = :run_id
    LEFT JOIN project ON project.name = :project
    LEFT JOIN environment ON environment.fingerprint = :fingerprint
    LEFT JOIN commit ON commit.project_id = project.id AND commit.sha = :sha
    LEFT JOIN LATERAL (
        SELECT project_id, identity_sha256, case_version_ids, series_ids, flags_sha256 FROM run
        WHERE (run.project_id, run.identity_sha256, run.number) <= (project.id, :identity_sha256, {_LAST_NUMBER})
        ORDER BY run.project_id DESC, run.identity_sha256 DESC, run.number DESC
        LIMIT 1
    ) alike ON alike.project_id = project.id AND alike.identity_sha256 = :identity_sha256
    LEFT JOIN LATERAL (
        SELECT project_id, facts_sha256, number, measured_on FROM run
        WHERE (run.project_id, run.facts_sha256, run.number) <= (project.id, :facts_sha256, {_LAST_NUMBER})
            AND facts_sha256 IS NOT NULL
        ORDER BY run.project_id DESC, run.facts_sha256 DESC, run.number DESC
        LIMIT 1
    ) compiled ON compiled.project_id = project.id AND compiled.facts_sha256 = :facts_sha256
    """
)


class Found(NamedTuple):
    """None where it has nothing."""

    content_hash: str | None
    """Of the run."""
    project_id: int | None
    environment_id: int | None
    commit_id: int | None
    first_parent_count: int | None
    """Of the commit, as it is known there."""
    parent_count: int | None
    new_number: int | None
    """That no other run has; None where the run is there."""
    now: datetime
    """By the server's clock."""
    lacks_partitions: bool
    """Whether some are still to be made (`ensure_partitions`)."""
    case_version_ids: list[int] | None
    """Of the newest run of the project that is alike (`alike.py`), as what follows."""
    series_ids: list[int] | None
    flags_sha256: bytes | None
    case_ids: list[int]
    fact_ids: list[int]
    """Of the machine code of the newest run of the project that has the same; empty where there is none."""

    def knows_less_than(self, commit: Commit) -> bool:
        """Whether the store may learn something of the commit."""
        place, parents = self.first_parent_count or 0, self.parent_count or 0
        return place < commit.first_parent_count or parents < len(commit.parents)


def find(
    connection: Connection, record: RunRecord, project: str, identity_sha256: bytes, facts_sha256: bytes | None
) -> Found:
    """Look, without waiting for anybody.

    Args:
        connection: Where it is looked.
        record: Of which the store may know something.
        project: Where its run would be.
        identity_sha256: Of the record.
        facts_sha256: The same of its machine code; None where nothing is said of any.
    """
    asked = {
        "run_id": record.run_id,
        "project": project,
        "fingerprint": environment_fingerprint(record.environment),
        "sha": record.commit.sha,
        "identity_sha256": identity_sha256,
        "facts_sha256": facts_sha256 or b"",  # which none has
        "partitions": list(partitions_for(in_utc(record.started_at).date())),
    }
    return Found._make(connection.execute(_FIND, asked).one())
