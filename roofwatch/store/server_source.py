"""Stored results from a server; `DatabaseSource` has the same methods."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar, Unpack
from uuid import UUID

from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_json

from roofwatch.ci.ab.noise_floor import NoiseFloor
from roofwatch.collector.errors import SpoolError
from roofwatch.collector.outbox.artefact_folder import ArtefactFolder
from roofwatch.collector.record.record import MAX_RECORD_BYTES, Artefact, RunRecord
from roofwatch.db.errors import AgedError
from roofwatch.db.queries.results import RunSummary, StepShare, StoredArtefact
from roofwatch.db.regression_values import TriagedRegression, TriageState
from roofwatch.db.values import RegressionState, Series
from roofwatch.store.server import GoneError, Server

if TYPE_CHECKING:  # a client has no SQLAlchemy
    from roofwatch.db.queries.questions import Question
    from roofwatch.db.queries.run_filter import IncludedRuns

_PAGE_SIZE = 1_000

P = ParamSpec("P")
A = TypeVar("A")


class _ComparedRuns(BaseModel):
    base_run_id: UUID
    head_run_id: UUID
    noise_floor: NoiseFloor | None = None


_COMPARED_RUNS = TypeAdapter(_ComparedRuns)
_NAMES = TypeAdapter(list[str])
RUNS = TypeAdapter(list[RunSummary])
_SERIES = TypeAdapter(list[Series])
_REGRESSIONS = TypeAdapter(list[TriagedRegression])
_STEP_SHARES = TypeAdapter(list[StepShare])
_ARTEFACTS = TypeAdapter(list[StoredArtefact])


@dataclass(frozen=True)
class ServerSource:
    """Every method raises SpoolError if it cannot answer."""

    server: Server

    def list_projects(self) -> Sequence[str]:
        return list(self.server.pages("/v1/projects", {}, _NAMES, size=_PAGE_SIZE))

    def list_runs(self, project: str, limit: int | None, *, is_quarantined: bool = False) -> Sequence[RunSummary]:
        query = {"project": project, "quarantined": is_quarantined}
        size = _PAGE_SIZE if limit is None else min(limit, _PAGE_SIZE)
        return list(islice(self.server.pages("/v1/runs", query, RUNS, size=size), limit))

    def read_series(
        self,
        project: str,
        *,
        kernel: str | None = None,
        metric: str | None = None,
        case_id: str | None = None,
        **included: Unpack[IncludedRuns],
    ) -> Sequence[Series]:
        query = {"project": project, "kernel": kernel, "metric": metric, "case": case_id, **included}
        return list(self.server.pages("/v1/series/points", query, _SERIES, size=_PAGE_SIZE))

    def list_regressions(
        self, project: str, state: RegressionState | None = None, triage: TriageState | None = None
    ) -> Sequence[TriagedRegression]:
        query = {"project": project, "state": state, "triage": triage}
        return list(self.server.pages("/v1/regressions", query, _REGRESSIONS, size=_PAGE_SIZE))

    def resolve_revisions(
        self, project: str, base: str, head: str, runner_class: str | None = None
    ) -> tuple[UUID, UUID]:
        query = {"project": project, "base": base, "head": head, "runner_class": runner_class}
        found = self.server.read("/v1/comparison/runs", query, _COMPARED_RUNS)
        return found.base_run_id, found.head_run_id

    def load_record(self, run_id: UUID) -> RunRecord:
        document = self.server.get(f"/v1/runs/{run_id}/record", max_bytes=MAX_RECORD_BYTES)
        return RunRecord.from_json(document, name=f"run {run_id} of {self.server.url}")

    def read_noise_floor(self, project: str, run_id: UUID) -> NoiseFloor | None:
        query = {"project": project, "base": run_id, "head": run_id, "noise_floor": True}
        return self.server.read("/v1/comparison/runs", query, _COMPARED_RUNS).noise_floor

    def list_step_shares(self, project: str, runner_class: str) -> Sequence[StepShare]:
        asked = to_json({"project": project, "runner_class": runner_class})
        return self.server.ask("/v1/questions/list_step_shares", asked, _STEP_SHARES)

    def ask(self, question: Question[P, A], *args: P.args, **kwargs: P.kwargs) -> A:
        try:
            return self.server.ask(f"/v1/questions/{question.name}", question.to_json(*args, **kwargs), question.answer)
        except GoneError as error:
            raise AgedError(str(error)) from None

    def list_artefacts(self, run_id: UUID) -> Sequence[StoredArtefact]:
        return list(self.server.pages(f"/v1/runs/{run_id}/artefacts", {}, _ARTEFACTS, size=_PAGE_SIZE))

    def fetch_artefact(self, run_id: UUID, artefact: Artefact, path: Path) -> None:
        with self.server.chunks(f"/v1/runs/{run_id}/artefacts/{artefact.sha256}") as content:
            ArtefactFolder(path.parent).receive(artefact, content, path)

    def read_artefact(self, run_id: UUID, sha256: str) -> bytes:
        content = self.server.get(f"/v1/runs/{run_id}/artefacts/{sha256}")
        if hashlib.sha256(content).hexdigest() != sha256:
            raise SpoolError(f"{self.server.url}: content {sha256[:12]}… of run {run_id} is incomplete; try again")
        return content
