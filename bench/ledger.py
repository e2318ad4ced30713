"""What was sent, beside what is stored."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session

from roofwatch.collector.record.record import Artefact, RunRecord
from roofwatch.db.artefacts import list_artefacts, read_artefact
from roofwatch.db.errors import StoreError
from roofwatch.db.queries.records import load_record
from roofwatch.db.schema.runs import CommitRow, ProjectRow, RunRow


@dataclass
class Tally:
    """What became of the records."""

    sent: int = 0
    acknowledged_before_the_kill: int = 0
    acknowledged_and_absent: int = 0
    never_arrived: int = 0
    other_content: int = 0
    doubled: int = 0
    files_lost: int = 0
    pushes: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    whereabouts: list[str] = field(default_factory=list)
    """For a person: of each record that is not stored, where else it is, and what was said when it was sent."""

    @property
    def is_clean(self) -> bool:
        return not any(
            (self.acknowledged_and_absent, self.never_arrived, self.other_content, self.doubled, self.files_lost)
        )


def is_there(engine: Engine, record: RunRecord) -> bool:
    """Whether a record is stored with the content that it has here; rows that came twice would make another of it."""
    try:
        with Session(engine) as session:
            return load_record(session, record.run_id).content_hash == record.content_hash
    except StoreError:
        return False


def stored_as(engine: Engine, record: RunRecord) -> str:
    """How a record is stored, in words: under which project, which is another for one in quarantine; or not."""
    query = (
        select(ProjectRow.name, RunRow.content_hash)
        .select_from(RunRow)
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .where(RunRow.run_id == record.run_id)
    )
    with Session(engine) as session:
        found = session.execute(query).all()
    if not found:
        return "no"
    return "; ".join(
        f"in {name}, {'whole' if content_hash == record.content_hash else 'with other content'}"
        for name, content_hash in found
    )


def check_record(engine: Engine, record: RunRecord, tally: Tally) -> None:
    """Add to the tally what is wrong with a record that was sent, files too."""
    with Session(engine) as session:
        query = select(func.count()).select_from(RunRow).where(RunRow.run_id == record.run_id)
        is_stored = session.execute(query).scalar_one() > 0
        stored = {one.sha256 for one in list_artefacts(session, record.run_id) if one.is_stored}
    if not is_stored:
        tally.never_arrived += 1
        return
    tally.other_content += not is_there(engine, record)
    tally.files_lost += sum(
        artefact.sha256 not in stored or not _is_whole(engine, record, artefact) for artefact in record.artefacts
    )


def list_missing(engine: Engine, records: Iterable[RunRecord]) -> list[RunRecord]:
    """Those that are not stored, under whatever project."""
    with Session(engine) as session:
        stored = set(session.scalars(select(RunRow.run_id)))
    return [record for record in records if record.run_id not in stored]


def check_count(engine: Engine, tally: Tally) -> None:
    """Add to the tally what there is more or less than was sent."""
    with Session(engine) as session:
        stored = session.execute(select(func.count()).select_from(RunRow)).scalar_one()
    tally.doubled += max(0, stored - tally.sent)
    tally.never_arrived = max(tally.never_arrived, tally.sent - stored)


def _is_whole(engine: Engine, record: RunRecord, artefact: Artefact) -> bool:
    content = b"".join(read_artefact(engine, record.run_id, artefact.sha256))
    return hashlib.sha256(content).hexdigest() == artefact.sha256
