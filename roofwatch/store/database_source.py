"""What is stored, as the database has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar
from uuid import UUID

from sqlalchemy import Engine

from roofwatch.ci.ab.noise_floor import NoiseFloor, stored_floor
from roofwatch.collector.record.record import RunRecord
from roofwatch.db.artefacts import read_artefact
from roofwatch.db.auth.values import TriageState
from roofwatch.db.engine.session import reading_session
from roofwatch.db.queries.comparing import resolve_revisions
from roofwatch.db.queries.pairs import list_newest_calibrations
from roofwatch.db.queries.question import Question
from roofwatch.db.queries.records import load_record
from roofwatch.db.queries.results import RunSummary
from roofwatch.db.queries.runs import list_projects, list_runs
from roofwatch.db.queries.series import read_series
from roofwatch.db.queries.series_keys import list_series_keys
from roofwatch.db.regressions.judgements import list_triaged
from roofwatch.db.values import RegressionState, Series
from roofwatch.store.questions import SeriesQuestion, TriagedRegression

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
        pairs, dirty = question.include_pairs, question.include_dirty
        with reading_session(self.engine) as session:
            wanted = list_series_keys(
                session,
                question.project,
                kernel=question.kernel,
                metric=question.metric,
                include_pairs=pairs,
                include_dirty=dirty,
                cases=None if question.case_id is None else {question.case_id},
            )
            return read_series(
                session,
                question.project,
                wanted,
                include_pairs=pairs,
                include_dirty=dirty,
            )

    def list_regressions(
        self, project: str, state: RegressionState | None = None, triage: TriageState | None = None
    ) -> Sequence[TriagedRegression]:
        with reading_session(self.engine) as session:
            found = list_triaged(session, project, None if state is None else {state}, triage=triage)
        return [TriagedRegression(str(decided.regression_id), one, decided) for one, decided in found]

    def find_sides(self, project: str, base: str, head: str, runner_class: str | None = None) -> tuple[UUID, UUID]:
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

    def read_contents(self, files: Sequence[tuple[UUID, str]]) -> list[bytes]:
        return [b"".join(read_artefact(self.engine, run_id, sha256)) for run_id, sha256 in files]
