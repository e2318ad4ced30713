"""Records as a server has them, for a job that compares with what was measured before and has no database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from pydantic import BaseModel, TypeAdapter

from roofwatch.collector.errors import SpoolError
from roofwatch.collector.record.record import MAX_RECORD_BYTES, RunRecord
from roofwatch.records import RECORD_SUFFIX
from roofwatch.store.server import Server, server_at, server_url

_RUNS_AT_ONCE = 500


class _Commit(BaseModel):
    sha: str


class _Run(BaseModel):
    run_id: UUID
    commit: _Commit
    is_dirty: bool


_RUNS = TypeAdapter(list[_Run])


@dataclass(frozen=True)
class Fetched:
    commit_sha: str
    run_id: UUID
    path: Path


def fetch_records(url: str | None, project: str, commits: Sequence[str], folder: Path) -> list[Fetched]:
    """Write the newest record of each commit into a folder, as a file named by its run.

    Args:
        url: Of the server; None for the setting `server_url`. The token comes from the environment.
        project: Its name.
        commits: Whole shas, or beginnings of them. What was measured of work trees that differed does not count.
        folder: Made if it is not there.

    Raises:
        SpoolError: the server is not named or cannot be asked, or has no run of one of them.
        RecordError: what came is no record, or it cannot be written.
    """
    server = server_at(server_url(url))
    wanted = dict.fromkeys(commits)
    found: dict[str, _Run] = {}
    # the last one to start first
    for run in server.pages("/v1/runs", {"project": project}, _RUNS, size=_RUNS_AT_ONCE):
        for commit in wanted.keys() - found.keys():
            if run.commit.sha.startswith(commit) and not run.is_dirty:
                found[commit] = run
        if len(found) == len(wanted):
            break
    missing = [commit for commit in wanted if commit not in found]
    if missing:
        raise SpoolError(f"{server.line.url}: project {project} has no run of {', '.join(missing)}")
    return [_fetch(server, found[commit], folder) for commit in wanted]


def fetch_record(server: Server, run_id: UUID) -> RunRecord:
    """The record of a run.

    Raises:
        SpoolError: the server cannot be asked, knows no such run, or no longer has its samples.
        RecordError: what came is no record.
    """
    document = server.get(f"/v1/runs/{run_id}/record", most_bytes=MAX_RECORD_BYTES)
    return RunRecord.from_json(document, name=f"run {run_id} of {server.line.url}")


def _fetch(server: Server, run: _Run, folder: Path) -> Fetched:
    record = fetch_record(server, run.run_id)
    path = folder / f"{run.run_id}{RECORD_SUFFIX}"
    record.write(path)
    return Fetched(run.commit.sha, run.run_id, path)
