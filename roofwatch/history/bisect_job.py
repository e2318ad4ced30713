"""Run one bisection, and keep the database up to date with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

import orjson
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.ci.bisect.measurements import range_of, series_to_bisect
from roofwatch.collector.errors import JournalError
from roofwatch.collector.outbox.files import atomic_write
from roofwatch.collector.redaction import Redaction
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.db.bisections import (
    BisectionProgress,
    Claim,
    ClaimLostError,
    begin_bisection,
    claim_bisection,
    finish_bisection,
    note_progress,
    read_bisection,
    release_bisection,
)
from roofwatch.db.engine.session import open_store
from roofwatch.db.errors import StoreError
from roofwatch.db.queries.series import read_series
from roofwatch.db.regressions.judgements import list_regressions
from roofwatch.db.regressions.triage import read_triage
from roofwatch.db.values import BisectionRange, BisectionState
from roofwatch.history.plan import BisectPlan, folder_of
from roofwatch.history.report import Ended, end_of, progress_of, step_line
from roofwatch.history.search import bisect
from roofwatch.history.state import BisectState
from roofwatch.history.survey import commit_refs, commits_between, describe_machine, sha_of
from roofwatch.terminal import console, print_error, progress

_CLAIM_FILE = "claim.json"


@dataclass(frozen=True)
class StoredBisection:
    """The right to write to one bisection of a database.

    If the database is away, measuring continues; the next write includes what is missing.
    """

    url: str
    claim: Claim

    @classmethod
    def begin(
        cls, url: str, asked: BisectionRange, *, requested_by: str, regression_id: UUID | None, folder: Path
    ) -> StoredBisection:
        """Start a bisection, or continue the one whose claim is in the folder.

        Raises:
            StoreError: the database is not reachable, or another runner works on it.
        """
        kept = _read_claim(folder / _CLAIM_FILE)
        with open_store(url) as engine:
            if kept is not None:
                with Session(engine) as session:
                    detail = read_bisection(session, kept.bisection_id)
                if detail is not None and detail.bisection.state is BisectionState.RUNNING:
                    return cls(url, kept)
            claim = begin_bisection(engine, asked, requested_by=requested_by, regression_id=regression_id)
        return cls(url, claim).keep(folder)

    def keep(self, folder: Path) -> StoredBisection:
        """Write the claim beside the measurements, for a resumed process."""
        folder.mkdir(parents=True, exist_ok=True)
        document = {"bisection_id": str(self.claim.bisection_id), "claim_id": str(self.claim.claim_id)}
        atomic_write(folder / _CLAIM_FILE, orjson.dumps(document))
        return self

    def note(self, progress: BisectionProgress) -> None:
        """Store the progress so far.

        Raises:
            ClaimLostError: another runner has taken it over.
        """
        self._write(lambda engine: note_progress(engine, self.claim, _redacted(progress)))

    def finish(self, state: BisectionState, ended: Ended | None = None, *, note: str = "") -> None:
        """Store the result.

        Raises:
            ClaimLostError: another runner has taken it over.
        """
        self._write(
            lambda engine: finish_bisection(
                engine,
                self.claim,
                state,
                progress=None if ended is None else _redacted(ended.progress),
                answer=None if ended is None else ended.answer,
                note=Redaction.of_this_machine().text(note),
            )
        )

    def release(self) -> None:
        """Return it, for another runner to continue."""
        self._write(lambda engine: release_bisection(engine, self.claim))

    def _write(self, write: Callable[[Engine], None]) -> None:
        try:
            with open_store(self.url) as engine:
                write(engine)
        except ClaimLostError:
            raise
        except StoreError as error:
            print_error(f"{error}; the bisection continues without it")


def _redacted(progress: BisectionProgress) -> BisectionProgress:
    """Without private data: reasons contain errors of the user's suite."""
    redaction = Redaction.of_this_machine()
    return replace(
        progress,
        commits=tuple(replace(known, reason=redaction.text(known.reason)) for known in progress.commits),
        steps=tuple(replace(step, note=redaction.text(step.note)) for step in progress.steps),
    )


def _read_claim(file: Path) -> Claim | None:
    try:
        document = orjson.loads(file.read_bytes())
        return Claim(UUID(document["bisection_id"]), UUID(document["claim_id"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


@dataclass(frozen=True)
class BisectJob:
    """A bisection, and where it is stored.

    Args:
        plan: What to bisect, and how.
        project: The project.
        fork_server: Forks the workers.
        url: Database URL; None for none.
        claim: On a requested bisection of that database.
        regression_id: The regression to explain.
    """

    plan: BisectPlan
    project: str
    fork_server: ForkServer
    url: str | None = None
    claim: Claim | None = None
    regression_id: UUID | None = None

    def of_regression(self, regression_id: UUID, *, folder: Path) -> BisectJob:
        """This job for the series and ends of a regression.

        Args:
            regression_id: As shown by triage and alerts.
            folder: Of the embedded database, used if none is configured.

        Raises:
            StoreError: no such regression, or nothing of it to bisect.
        """
        asked = range_of_regression(self.url, folder, self.project, regression_id)
        return replace(self._with_range(asked), regression_id=regression_id)

    def of_next(self) -> BisectJob | None:
        """This job for the oldest request that fits this machine, now claimed; None if there is none.

        Raises:
            StoreError: no database is configured, or it is not reachable.
            CollectorError: the machine cannot be described.
        """
        if self.url is None:
            raise StoreError("--next needs a database with requests: set ROOFWATCH_DATABASE_URL")
        plan = self.plan
        environment = describe_machine(plan.path, plan.plan.device, plan.plan.thread_count, self.fork_server)
        with open_store(self.url) as engine, Session(engine) as session:
            claim = claim_bisection(engine, self.project, environment.runner_class)
            detail = None if claim is None else read_bisection(session, claim.bisection_id)
        if detail is None:
            return None
        known = detail.bisection
        asked = BisectionRange(
            known.project, known.case_id, known.implementation, known.good_sha, known.bad_sha, known.runner_class
        )
        return replace(self._with_range(asked), claim=claim)

    def run(self) -> Ended:
        """Run the bisection.

        Raises:
            CollectorError: it cannot be done; the message says why.
            StoreError: the database is not reachable, or another runner works on it.
        """
        stored = None if self.url is None or self.claim is None else StoredBisection(self.url, self.claim)
        try:
            stored = self._stored()
            return self._run(stored)
        except Exception as error:
            # a JournalError: another process works on it here, so it has not failed
            if stored is not None and (self.claim is not None or not isinstance(error, JournalError)):
                stored.finish(BisectionState.FAILED, note=str(error))
            raise
        except BaseException:
            # stopped: a request goes back for another runner
            if stored is not None and self.claim is not None:
                stored.release()
            raise

    def _run(self, stored: StoredBisection | None) -> Ended:
        plan = self.plan
        good = sha_of(plan.path, plan.good)
        refs = commit_refs(plan.path, good, commits_between(plan.path, good, plan.bad))
        shown = 0
        with progress("bisection") as on_progress:

            def watch(state: BisectState) -> None:
                nonlocal shown
                if len(state.visits) > shown:
                    shown = len(state.visits)
                    console().print(step_line(state, refs), markup=False, soft_wrap=True)
                if stored is not None:
                    stored.note(progress_of(state, refs))

            ended = end_of(bisect(plan, self.fork_server, on_progress, watch), refs)
        if stored is not None:
            stored.finish(ended.state, ended, note="; ".join(ended.notes))
        return ended

    def _with_range(self, asked: BisectionRange) -> BisectJob:
        plan = replace(
            self.plan,
            case_id=asked.case_id,
            implementation=asked.implementation,
            good=asked.good_sha,
            bad=asked.bad_sha,
        )
        return replace(self, plan=plan)

    def _stored(self) -> StoredBisection | None:
        if self.url is None:
            return None
        plan, folder = self.plan, folder_of(self.plan)
        if self.claim is not None:
            return StoredBisection(self.url, self.claim).keep(folder)
        good_sha, bad_sha = sha_of(plan.path, plan.good), sha_of(plan.path, plan.bad)
        asked = BisectionRange(self.project, plan.case_id, plan.implementation, good_sha, bad_sha)
        return StoredBisection.begin(
            self.url, asked, requested_by="command line", regression_id=self.regression_id, folder=folder
        )


def range_of_regression(url: str | None, folder: Path, project: str, regression_id: UUID) -> BisectionRange:
    """What to bisect to explain a stored regression.

    Args:
        url: Database URL; None for the embedded one.
        folder: Of the embedded database.
        project: The regression's project.
        regression_id: As shown by triage and alerts.

    Raises:
        StoreError: no such regression, or nothing of it to bisect.
    """
    with open_store(url, folder=folder) as engine, Session(engine) as session:
        keys = {key for key, triage in read_triage(session, project).items() if triage.regression_id == regression_id}
        found = next((each for each in list_regressions(session, project) if each.key in keys), None)
        if found is None:
            raise StoreError(f"regression {regression_id}: not in project {project!r}")
        point = series_to_bisect(found)
        series = [] if point is None else read_series(session, project, keys=[point.series])
    asked = range_of(found, next(iter(series), None))
    if asked is None:
        raise StoreError(f"regression {regression_id}: no time changed in a step, so there is nothing to bisect")
    return asked
