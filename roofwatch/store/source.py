"""What reads stored results: the database, or a server in front of one. Both answer the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar
from uuid import UUID

from roofwatch.ci.ab.noise_floor import NoiseFloor
from roofwatch.collector.record.record import Artefact, RunRecord
from roofwatch.db.auth.values import TriagedRegression, TriageState
from roofwatch.db.queries.results import RunSummary, StoredArtefact
from roofwatch.db.values import RegressionState, Series

if TYPE_CHECKING:
    from roofwatch.db.queries.question import Question

P = ParamSpec("P")
A = TypeVar("A")


@dataclass(frozen=True)
class SeriesQuestion:
    """Which series of a project to read; None means any."""

    project: str
    kernel: str | None = None
    metric: str | None = None
    case_id: str | None = None
    include_pairs: bool = False
    """Include runs that are one side of a pair."""
    include_dirty: bool = False
    """Include runs of a modified work tree."""


class Source(Protocol):
    """Every method raises StoreError or SpoolError if it cannot answer."""

    def list_projects(self) -> Sequence[str]:
        """List the readable projects by name."""

    def list_runs(self, project: str, limit: int | None, *, is_quarantined: bool = False) -> Sequence[RunSummary]:
        """List runs, newest first; all without a limit."""

    def read_series(self, question: SeriesQuestion) -> Sequence[Series]:
        """Read series in the order of their keys."""

    def list_regressions(
        self, project: str, state: RegressionState | None = None, triage: TriageState | None = None
    ) -> Sequence[TriagedRegression]:
        """List regressions, newest commit first, then by kernel and verdict."""

    def resolve_revisions(
        self, project: str, base: str, head: str, runner_class: str | None = None
    ) -> tuple[UUID, UUID]:
        """Return the runs to compare for two commits (sha, may be abbreviated) or run ids."""

    def load_record(self, run_id: UUID) -> RunRecord:
        """Read the record of a run; fails once its samples are removed."""

    def read_noise_floor(self, project: str, run_id: UUID) -> NoiseFloor | None:
        """Read the noise floor from the newest calibrations of a run's runner and harness; None without any."""

    def ask(self, question: Question[P, A], *args: P.args, **kwargs: P.kwargs) -> A:
        """Answer a question of the dashboard."""

    def list_artefacts(self, run_id: UUID) -> Sequence[StoredArtefact]:
        """List the files that the record of a run names."""

    def fetch_artefact(self, run_id: UUID, artefact: Artefact, path: Path) -> None:
        """Write one file to a path, completely or not at all."""

    def read_artefact(self, run_id: UUID, sha256: str) -> bytes:
        """Read the content of one file."""
