"""Where what is stored is read from: the database, or a server in front of one. Both answer the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ParamSpec, Protocol, TypeVar
from uuid import UUID

from roofwatch.ci.ab.noise_floor import NoiseFloor
from roofwatch.collector.record.record import RunRecord
from roofwatch.db.auth.values import TriageState
from roofwatch.db.errors import StoreError
from roofwatch.db.queries.question import Question
from roofwatch.db.queries.results import RunSummary
from roofwatch.db.values import RegressionState, Series
from roofwatch.store.questions import SeriesQuestion, TriagedRegression
from roofwatch.store.server import server_to_read

P = ParamSpec("P")
A = TypeVar("A")


class Source(Protocol):
    """Every question raises StoreError or SpoolError where it cannot be answered."""

    def list_projects(self) -> Sequence[str]:
        """Those that may be read, by name."""

    def list_runs(self, project: str, limit: int | None, *, is_quarantined: bool = False) -> Sequence[RunSummary]:
        """So many at most, or all; the last one to start first."""

    def read_series(self, question: SeriesQuestion) -> Sequence[Series]:
        """With their points, in the order of their keys."""

    def list_regressions(
        self, project: str, state: RegressionState | None = None, triage: TriageState | None = None
    ) -> Sequence[TriagedRegression]:
        """Of the newest commit first, then by kernel and verdict; only of some state where one is given."""

    def find_sides(self, project: str, base: str, head: str, runner_class: str | None = None) -> tuple[UUID, UUID]:
        """The runs to compare for two sides: the sha of a commit, its beginning, or a run's id."""

    def load_record(self, run_id: UUID) -> RunRecord:
        """What was sent; refused once its samples are gone."""

    def read_noise_floor(self, project: str, run_id: UUID) -> NoiseFloor | None:
        """What the newest calibrations say of the runner of a run, under its harness; None where there is none."""

    def ask(self, question: Question[P, A], *args: P.args, **kwargs: P.kwargs) -> A:
        """The answer to one of the questions of a reader; AgedError where its samples are no longer kept."""

    def read_contents(self, files: Sequence[tuple[UUID, str]]) -> list[bytes]:
        """The whole content of files of runs, each by the run and its sha256."""


@contextmanager
def open_source(url: str | None) -> Iterator[Source]:
    """The server of a URL, or of the settings; else the store that these name (`server_to_read`).

    Raises:
        SpoolError: the server's URL cannot be used.
        StoreError: the store cannot be opened.
    """
    server = server_to_read(url)
    if server is not None:
        from roofwatch.store.server_source import ServerSource

        yield ServerSource(server)
        return
    from roofwatch.arguments import open_configured_store
    from roofwatch.store.database_source import DatabaseSource

    with open_configured_store() as engine:
        yield DatabaseSource(engine)


def check_project(source: Source, project: str) -> None:
    """Tell a project that has nothing of what was asked for from one that there is not.

    Raises:
        StoreError: there is none of this name.
    """
    known = source.list_projects()
    if project not in known:
        raise StoreError(f"project {project}: nothing is stored of it; there is {', '.join(known) or 'no project yet'}")
