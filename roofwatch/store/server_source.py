"""What is stored, as a server answers."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import ParamSpec, TypeVar
from uuid import UUID

from pydantic import BaseModel, TypeAdapter

from roofwatch.ci.ab.noise_floor import NoiseFloor
from roofwatch.collector.errors import SpoolError
from roofwatch.collector.record.record import RunRecord
from roofwatch.db.auth.values import TriageState
from roofwatch.db.errors import AgedError
from roofwatch.db.queries.question import Question
from roofwatch.db.queries.results import RunSummary
from roofwatch.db.values import RegressionState, Series, SeriesKey, SeriesPoint
from roofwatch.store.fetching import fetch_record
from roofwatch.store.questions import SeriesQuestion, TriagedRegression
from roofwatch.store.server import GoneError, Server, TooMuchError

_MOST_AT_ONCE = 1_000
_SERIES_AT_ONCE = 20
"""Each with all of its points: twenty of a few thousand are some tens of megabytes."""
_BEGINNING = datetime(2007, 1, 1, tzinfo=UTC)
"""Before CUDA there was nothing to measure; what says that it began earlier is asked for all the same."""
_END = _BEGINNING + timedelta(days=2**15)
"""A power of two, so that halves are whole days for long."""
_SHORTEST = timedelta(seconds=1)

P = ParamSpec("P")
A = TypeVar("A")


class _Sides(BaseModel):
    base_run_id: UUID
    head_run_id: UUID
    noise_floor: NoiseFloor | None = None


_SIDES = TypeAdapter(_Sides)
_NAMES = TypeAdapter(list[str])
_RUNS = TypeAdapter(list[RunSummary])
_SERIES = TypeAdapter(list[Series])
_REGRESSIONS = TypeAdapter(list[TriagedRegression])


@dataclass(frozen=True)
class ServerSource:
    """A `Source`."""

    server: Server

    def list_projects(self) -> Sequence[str]:
        return list(self.server.pages("/v1/projects", {}, _NAMES, size=_MOST_AT_ONCE))

    def list_runs(self, project: str, limit: int | None, *, is_quarantined: bool = False) -> Sequence[RunSummary]:
        query = {"project": project, "quarantined": _word(is_quarantined)}
        size = _MOST_AT_ONCE if limit is None else min(limit, _MOST_AT_ONCE)
        return list(islice(self.server.pages("/v1/runs", query, _RUNS, size=size), limit))

    def read_series(self, question: SeriesQuestion) -> Sequence[Series]:
        wanted = {"kernel": question.kernel, "metric": question.metric, "case": question.case_id}
        query = {
            "project": question.project,
            **_said(wanted),
            "include_pairs": _word(question.include_pairs),
            "include_dirty": _word(question.include_dirty),
        }
        points: defaultdict[SeriesKey, list[SeriesPoint]] = defaultdict(list)
        for one in self._series_of(query, _BEGINNING, _END):
            points[one.key] += one.points
        return [
            Series(key, tuple(sorted(points[key], key=lambda point: (point.commit, point.measured_at, point.run_id))))
            for key in sorted(points)
        ]

    def _series_of(self, query: dict[str, str], since: datetime, until: datetime) -> list[Series]:
        """Series as far as their runs began in a time: asked for in halves of it where a server has more of them than
        it answers at once. The halves are the same each time, so that what was answered before need not be sent again.
        """
        within = query | ({"since": since.isoformat()} if since != _BEGINNING else {})
        within |= {"until": until.isoformat()} if until != _END else {}
        try:
            return list(self.server.pages("/v1/series/points", within, _SERIES, size=_SERIES_AT_ONCE))
        except TooMuchError:
            half = (until - since) // 2
            if half < _SHORTEST:
                raise
        return self._series_of(query, since, since + half) + self._series_of(query, since + half, until)

    def list_regressions(
        self, project: str, state: RegressionState | None = None, triage: TriageState | None = None
    ) -> Sequence[TriagedRegression]:
        query = {"project": project, **_said({"state": state, "triage": triage})}
        return list(self.server.pages("/v1/regressions", query, _REGRESSIONS, size=_MOST_AT_ONCE))

    def find_sides(self, project: str, base: str, head: str, runner_class: str | None = None) -> tuple[UUID, UUID]:
        query = {"project": project, "base": base, "head": head, **_said({"runner_class": runner_class})}
        sides = self.server.read("/v1/comparison/runs", query, _SIDES)
        return sides.base_run_id, sides.head_run_id

    def load_record(self, run_id: UUID) -> RunRecord:
        return fetch_record(self.server, run_id)

    def read_noise_floor(self, project: str, run_id: UUID) -> NoiseFloor | None:
        query = {"project": project, "base": str(run_id), "head": str(run_id), "noise_floor": _word(True)}
        return self.server.read("/v1/comparison/runs", query, _SIDES).noise_floor

    def ask(self, question: Question[P, A], *args: P.args, **kwargs: P.kwargs) -> A:
        document = question.to_json(*args, **kwargs)
        try:
            return self.server.ask(f"/v1/questions/{question.name}", document, question.answer)
        except GoneError as error:
            raise AgedError(str(error)) from None

    def read_contents(self, files: Sequence[tuple[UUID, str]]) -> list[bytes]:
        return [self._content(run_id, sha256) for run_id, sha256 in files]

    def _content(self, run_id: UUID, sha256: str) -> bytes:
        content = self.server.get(f"/v1/runs/{run_id}/artefacts/{sha256}")
        if hashlib.sha256(content).hexdigest() != sha256:
            raise SpoolError(
                f"{self.server.line.url}: content {sha256[:12]}… of run {run_id} did not come whole; ask again"
            )
        return content


def _said(query: dict[str, str | None]) -> dict[str, str]:
    return {name: str(value) for name, value in query.items() if value is not None}


def _word(is_so: bool) -> str:
    return str(is_so).lower()
