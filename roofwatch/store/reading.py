"""Open the database or server that is read, and read the two sides of a comparison."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from roofwatch.ci.ab.noise_floor import NoiseFloor
from roofwatch.collector.git import find_repository, project_of
from roofwatch.db.errors import StoreError
from roofwatch.model.errors import RecordError
from roofwatch.model.record import RunRecord
from roofwatch.model.stored_results import StepShare
from roofwatch.store.server import Server, server_to_read

if TYPE_CHECKING:  # a client of a server has no SQLAlchemy
    from roofwatch.store.database_source import DatabaseSource

Source: TypeAlias = "DatabaseSource | Server"
"""What reads stored results. Both answer the same."""
_REVISION = re.compile(r"[0-9a-f-]{4,64}")
"""A commit's sha or a run id."""


@contextmanager
def open_source(url: str | None) -> Iterator[Source]:
    """Open the server of a URL or of the settings, else the database (`server_to_read`).

    Raises:
        SpoolError: the server's URL cannot be used.
        StoreError: the database cannot be opened.
    """
    server = server_to_read(url)
    if server is not None:
        yield server
        return
    from roofwatch.configuration.arguments import open_configured_store
    from roofwatch.store.database_source import DatabaseSource

    with open_configured_store() as engine:
        yield DatabaseSource(engine)


def choose_project(source: Source, project: str | None) -> str:
    """Return a stored project: the named one, else the only one, else that of the current
    repository.

    Raises:
        StoreError: there is no such project, or several to choose from.
    """
    projects = source.list_projects()
    stored = ", ".join(projects) or "none"
    if project is None:
        repository = find_repository(Path.cwd())
        if len(projects) == 1:
            return projects[0]
        if repository is not None and project_of(repository) in projects:
            return project_of(repository)
        raise StoreError(f"name a project with --project; stored projects: {stored}")
    if project not in projects:
        raise StoreError(
            f"project {project}: no history is stored: keep its records with roofwatch ingest; "
            f"stored projects: {stored}"
        )
    return project


@dataclass(frozen=True)
class Sides:
    """The two records of a comparison."""

    base: RunRecord
    head: RunRecord
    noise_floor: NoiseFloor | None = None
    """From stored calibrations of the head's runner."""
    steps: Sequence[StepShare] = ()
    """Stored shares of steps of workloads on the head's runner."""


def read_sides(
    base: Path,
    head: Path,
    *,
    project: str | None,
    url: str | None,
    runner_class: str | None = None,
) -> Sides:
    """Read the two records of a comparison from files or from stored results.

    With a project a side may also be a commit's sha, perhaps abbreviated, or a run id. Two commits
    are compared by their newest pair, else by the best run of each; a commit is compared with a
    file by its best run on the file's runner class.

    Raises:
        RecordError: a file cannot be read, or the project is missing.
        SpoolError: the server cannot be reached, or has no such run.
        StoreError: the database cannot be opened, or has no such run.
    """
    sides = (base, head)
    if project is None:
        if url is not None or runner_class is not None:
            raise RecordError("--url and --runner-class select stored results: add --project")
        for side in sides:
            if _REVISION.fullmatch(str(side)) and not side.exists():
                raise RecordError(
                    f"{side}: no such file; add --project if it is a stored commit or run"
                )
        return Sides(RunRecord.read(base), RunRecord.read(head))
    files = [RunRecord.read(side) if side.is_file() else None for side in sides]
    measured_on = [record.environment.runner_class for record in files if record is not None]
    # a file's run is no side of a stored pair: the other side is resolved alone
    names = [str(side) for side, record in zip(sides, files, strict=True) if record is None]
    if not names:
        raise RecordError(f"{base} and {head} are files: leave --project out")
    with open_source(url) as source:
        on_runner = runner_class or next(iter(measured_on), None)
        run_ids = source.resolve_revisions(project, names[0], names[-1], on_runner)
        read = [
            record or source.load_record(run_id)
            for record, run_id in zip(files, run_ids, strict=True)
        ]
        noise_floor = source.read_noise_floor(project, run_ids[1])
        steps = source.list_step_shares(project, read[1].environment.runner_class)
    if noise_floor is not None and noise_floor.why_of_other_runner(read[1]):
        noise_floor = None
    return Sides(
        base=read[0],
        head=read[1],
        noise_floor=noise_floor,
        steps=steps,
    )
