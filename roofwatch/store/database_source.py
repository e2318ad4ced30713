"""Stored results from the database; `Server` has the same methods."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar
from uuid import UUID

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.ci.ab.noise_floor import NoiseFloor, stored_floor
from roofwatch.collector.outbox.artefact_folder import ArtefactFolder
from roofwatch.db.engine.session import reading_session
from roofwatch.db.errors import StoreError
from roofwatch.db.ingest.artefacts import list_artefacts, read_artefact
from roofwatch.db.queries.comparing import resolve_revisions
from roofwatch.db.queries.evidence import list_step_shares
from roofwatch.db.queries.pairs import list_newest_calibrations
from roofwatch.db.queries.project import list_projects
from roofwatch.db.queries.questions import Question
from roofwatch.db.queries.records import load_record
from roofwatch.db.queries.runs import list_runs
from roofwatch.db.queries.series import list_counted_runs, read_series
from roofwatch.db.queries.series_keys import list_filtered_keys
from roofwatch.db.regressions.acceptances import list_acceptances
from roofwatch.db.regressions.judgements import list_triaged, read_run_state
from roofwatch.model.acceptance import PullRequestAcceptance
from roofwatch.model.history import RegressionState, Series
from roofwatch.model.record import Artefact, RunRecord
from roofwatch.model.series_filter import SeriesFilter
from roofwatch.model.stored_results import RunSummary, StepShare, StoredArtefact
from roofwatch.model.triage import TriagedRegression, TriageState

P = ParamSpec("P")
A = TypeVar("A")


@dataclass(frozen=True)
class DatabaseSource:
    """Every method raises StoreError if it cannot answer."""

    engine: Engine

    def list_projects(self) -> Sequence[str]:
        """List the readable projects by name."""
        return self._ask(list_projects)

    def list_runs(
        self,
        project: str,
        limit: int | None,
        *,
        is_quarantined: bool = False,
    ) -> Sequence[RunSummary]:
        """List runs, newest first; all without a limit."""
        return self._ask(list_runs, project, limit, is_quarantined=is_quarantined)

    def read_series(
        self, chosen: SeriesFilter, *, since: datetime | None = None
    ) -> Sequence[Series]:
        """Read series in the order of their keys, of runs that started then or later."""
        with reading_session(self.engine) as session:
            keys = list_filtered_keys(session, chosen)
            return read_series(session, chosen.project, keys, since=since, **chosen.included)

    def list_counted_runs(self, project: str) -> Sequence[tuple[str, datetime]]:
        """List id and start of the runs of all series of a project, the oldest first."""
        return self._ask(list_counted_runs, project)

    def list_regressions(
        self,
        project: str,
        state: RegressionState | None = None,
        triage: TriageState | None = None,
    ) -> Sequence[TriagedRegression]:
        """List regressions, newest commit first, then by kernel and verdict."""
        return self._ask(list_triaged, project, None if state is None else {state}, triage=triage)

    def list_acceptances(self, project: str) -> Sequence[PullRequestAcceptance]:
        """List what was accepted in pull requests, the newest first."""
        return self._ask(list_acceptances, project)

    def resolve_revisions(
        self,
        project: str,
        base: str,
        head: str,
        runner_class: str | None = None,
    ) -> tuple[UUID, UUID]:
        """Return the runs to compare for two commits (sha, may be abbreviated) or run ids."""
        return self._ask(resolve_revisions, project, base, head, runner_class=runner_class)

    def load_record(self, run_id: UUID) -> RunRecord:
        """Read the record of a run; fails once its samples are removed."""
        return self._ask(load_record, run_id)

    def read_noise_floor(self, project: str, run_id: UUID) -> NoiseFloor | None:
        """Read the noise floor from the newest calibrations of a run's runner and harness; None
        without any.
        """
        return stored_floor(self._ask(list_newest_calibrations, project, run_id))

    def list_step_shares(self, project: str, runner_class: str) -> Sequence[StepShare]:
        """List the shares of functions in steps of workloads, of the newest run of each on a runner
        class.
        """
        return self._ask(list_step_shares, project, runner_class)

    def ask(self, question: Question[P, A], *args: P.args, **kwargs: P.kwargs) -> A:
        """Answer a question of the dashboard."""
        return self._ask(question.ask, *args, **kwargs)

    def _ask(
        self,
        query: Callable[Concatenate[Session, P], A],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> A:
        with reading_session(self.engine) as session:
            return query(session, *args, **kwargs)

    def list_artefacts(self, run_id: UUID) -> Sequence[StoredArtefact]:
        """List the files that the record of a run names."""
        with reading_session(self.engine) as session:
            if read_run_state(session, run_id) is None:
                raise StoreError(
                    f"run {run_id}: not in this database; ingest its record file first, or use "
                    f"--url"
                )
            return list_artefacts(session, run_id)

    def fetch_artefact(self, run_id: UUID, artefact: Artefact, path: Path) -> None:
        """Write one file to a path, completely or not at all."""
        ArtefactFolder(path.parent).receive(
            artefact, read_artefact(self.engine, run_id, artefact.sha256), path
        )

    def read_artefact(self, run_id: UUID, sha256: str) -> bytes:
        """Read the content of one file."""
        return b"".join(read_artefact(self.engine, run_id, sha256))
