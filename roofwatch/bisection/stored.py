"""A bisection in the database that the settings name, written while it goes on.

That the database is away for a while stops nobody from measuring: what was measured is on the disk, and what could not
be written is written with the next step. Reasons come from a suite's own errors, so what must not leave the machine is
taken out of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

import orjson

from roofwatch.bisection.report import Ended
from roofwatch.collector.outbox.files import atomic_write
from roofwatch.collector.redaction import Redaction
from roofwatch.db.bisections import (
    BisectionDetail,
    BisectionProgress,
    Claim,
    ClaimLostError,
    begin_bisection,
    finish_bisection,
    note_progress,
    read_bisection,
    release_bisection,
)
from roofwatch.db.engine.session import open_store
from roofwatch.db.errors import StoreError
from roofwatch.db.values import BisectionRange, BisectionState
from roofwatch.terminal import print_error

_CLAIM_FILE = "claim.json"


@dataclass(frozen=True)
class StoredBisection:
    """The right to write to one bisection of a database."""

    url: str
    claim: Claim

    @classmethod
    def begin(
        cls, url: str, asked: BisectionRange, *, requested_by: str, regression_id: UUID | None, folder: Path
    ) -> StoredBisection:
        """Write down that it begins; or go on with the one whose claim lies in the folder.

        Raises:
            StoreError: the database cannot be reached, or another runner is at it.
        """
        file = folder / _CLAIM_FILE
        kept = _read_claim(file)
        with open_store(url) as engine:
            if kept is not None and _is_running(url, kept.bisection_id):
                return cls(url, kept)
            claim = begin_bisection(engine, asked, requested_by=requested_by, regression_id=regression_id)
        return cls(url, claim).keep(folder)

    def keep(self, folder: Path) -> StoredBisection:
        """Put the claim beside what is measured, for a process that goes on."""
        folder.mkdir(parents=True, exist_ok=True)
        document = {"bisection_id": str(self.claim.bisection_id), "claim_id": str(self.claim.claim_id)}
        atomic_write(folder / _CLAIM_FILE, orjson.dumps(document))
        return self

    def note(self, progress: BisectionProgress) -> None:
        """Write what is known so far.

        Raises:
            ClaimLostError: another runner has taken it over.
        """
        self._try(lambda: self._note(progress))

    def finish(self, ended: Ended) -> None:
        """Write how it ended.

        Raises:
            ClaimLostError: another runner has taken it over.
        """
        self._try(lambda: self._finish(ended))

    def fail(self, reason: str) -> None:
        """Write that it could not be done."""

        def write() -> None:
            with open_store(self.url) as engine:
                note = Redaction.of_this_machine().text(reason)
                finish_bisection(engine, self.claim, BisectionState.FAILED, note=note)

        self._try(write)

    def release(self) -> None:
        """Give it back for another runner to go on."""

        def write() -> None:
            with open_store(self.url) as engine:
                release_bisection(engine, self.claim)

        self._try(write)

    def _note(self, progress: BisectionProgress) -> None:
        with open_store(self.url) as engine:
            note_progress(engine, self.claim, _redacted(progress))

    def _finish(self, ended: Ended) -> None:
        with open_store(self.url) as engine:
            finish_bisection(
                engine,
                self.claim,
                ended.state,
                progress=_redacted(ended.progress),
                answer=ended.answer,
                note=Redaction.of_this_machine().text("; ".join(ended.notes)),
            )

    @staticmethod
    def _try(write: Callable[[], None]) -> None:
        try:
            write()
        except ClaimLostError:
            raise
        except StoreError as error:
            print_error(f"{error}; the bisection goes on without it")


def _redacted(progress: BisectionProgress) -> BisectionProgress:
    redaction = Redaction.of_this_machine()
    return replace(
        progress,
        commits=tuple(replace(known, reason=redaction.text(known.reason)) for known in progress.commits),
        steps=tuple(replace(step, note=redaction.text(step.note)) for step in progress.steps),
    )


def read_stored(url: str, bisection_id: UUID) -> BisectionDetail | None:
    """A bisection of the database."""
    from sqlalchemy.orm import Session

    with open_store(url) as engine, Session(engine) as session:
        return read_bisection(session, bisection_id)


def _is_running(url: str, bisection_id: UUID) -> bool:
    detail = read_stored(url, bisection_id)
    return detail is not None and detail.bisection.state is BisectionState.RUNNING


def _read_claim(file: Path) -> Claim | None:
    try:
        document = orjson.loads(file.read_bytes())
        return Claim(UUID(document["bisection_id"]), UUID(document["claim_id"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
