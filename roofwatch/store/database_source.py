"""Stored results from the database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar
from uuid import UUID

from sqlalchemy import Engine

from roofwatch.ci.ab.noise_floor import NoiseFloor, stored_floor
from roofwatch.collector.outbox.artefact_folder import ArtefactFolder
from roofwatch.collector.record.record import Artefact, RunRecord
from roofwatch.db.artefacts import list_artefacts, read_artefact
from roofwatch.db.auth.values import TriagedRegression, TriageState
from roofwatch.db.engine.session import reading_session
from roofwatch.db.errors import StoreError
from roofwatch.db.queries.comparing import resolve_revisions
from roofwatch.db.queries.pairs import list_newest_calibrations
from roofwatch.db.queries.question import Question
from roofwatch.db.queries.records import load_record
from roofwatch.db.queries.results import RunSummary, StoredArtefact
from roofwatch.db.queries.run_filter import IncludedRuns
from roofwatch.db.queries.runs import list_projects, list_runs
from roofwatch.db.queries.series import read_series
from roofwatch.db.queries.series_keys import list_series_keys
from roofwatch.db.regressions.analysis_requests import read_run_state
from roofwatch.db.regressions.judgements import list_triaged
from roofwatch.db.values import RegressionState, Series
from roofwatch.store.source import SeriesQuestion

P = ParamSpec("P")
A = TypeVar("A")


@dataclass(frozen=True)
class DatabaseSource:
    """A `Source`."""

    engine: Engine

    def list_projects(self) -> Sequence[str]:
        with reading_session(self.engine) as session:
            return list_projects(session)

    def list_runs(self, project: str, limit: int | None, *, is_quarantined: bool = False) -> Sequence[RunSummary]:
        with reading_session(self.engine) as session:
            return list_runs(session, project, limit, is_quarantined=is_quarantined)

    def read_series(self, question: SeriesQuestion) -> Sequence[Series]:
        cases = None if question.case_id is None else [question.case_id]
        included: IncludedRuns = {
            "include_pairs": question.include_pairs,
            "include_dirty": question.include_dirty,
        }
        with reading_session(self.engine) as session:
            keys = list_series_keys(
                session, question.project, kernel=question.kernel, metric=question.metric, cases=cases, **included
            )
            return read_series(session, question.project, keys, **included)

    def list_regressions(
        self, project: str, state: RegressionState | None = None, triage: TriageState | None = None
    ) -> Sequence[TriagedRegression]:
        with reading_session(self.engine) as session:
            return list_triaged(session, project, None if state is None else {state}, triage=triage)

    def resolve_revisions(
        self, project: str, base: str, head: str, runner_class: str | None = None
    ) -> tuple[UUID, UUID]:
        with reading_session(self.engine) as session:
            return resolve_revisions(session, project, base, head, runner_class=runner_class)

    def load_record(self, run_id: UUID) -> RunRecord:
        with reading_session(self.engine) as session:
            return load_record(session, run_id)

    def read_noise_floor(self, project: str, run_id: UUID) -> NoiseFloor | None:
        with reading_session(self.engine) as session:
            return stored_floor(list_newest_calibrations(session, project, run_id))

    def ask(self, question: Question[P, A], *args: P.args, **kwargs: P.kwargs) -> A:
        with reading_session(self.engine) as session:
            return question.ask(session, *args, **kwargs)

    def list_artefacts(self, run_id: UUID) -> Sequence[StoredArtefact]:
        with reading_session(self.engine) as session:
            if read_run_state(session, run_id) is None:
                raise StoreError(f"run {run_id}: not in this database; ingest its record file first, or use --url")
            return list_artefacts(session, run_id)

    def fetch_artefact(self, run_id: UUID, artefact: Artefact, path: Path) -> None:
        ArtefactFolder(path.parent).receive(artefact, read_artefact(self.engine, run_id, artefact.sha256), path)

    def read_artefact(self, run_id: UUID, sha256: str) -> bytes:
        return b"".join(read_artefact(self.engine, run_id, sha256))
