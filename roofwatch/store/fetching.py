"""Records as a server has them, for a job that compares with what was measured before and has no database."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote
from uuid import UUID

import orjson
from pydantic import BaseModel, TypeAdapter, ValidationError

from collector.errors import SpoolError
from collector.keeping.http_line import TOKEN_VARIABLE, Answered, HttpLine
from collector.record import MAX_RECORD_BYTES, RunRecord
from roofwatch import __version__
from roofwatch.records import RECORD_SUFFIX

_MAX_LIST_BYTES = 2**24
_MAX_REASON_BYTES = 2**16
_PAGE = 500
_HEADERS = {"User-Agent": f"roofwatch/{__version__}"}
_FOUND = 200


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
    line = HttpLine(url or _configured(), os.environ.get(TOKEN_VARIABLE) or None)
    wanted = dict.fromkeys(commits)
    found: dict[str, _Run] = {}
    for run in _runs(line, project):
        for commit in wanted.keys() - found.keys():
            if run.commit.sha.startswith(commit) and not run.is_dirty:
                found[commit] = run
        if len(found) == len(wanted):
            break
    missing = [commit for commit in wanted if commit not in found]
    if missing:
        raise SpoolError(f"{line.url}: project {project} has no run of {', '.join(missing)}")
    return [_fetch(line, found[commit], folder) for commit in wanted]


def _configured() -> str:
    from roofwatch.settings import load_settings

    url = load_settings().server_url
    if url is None:
        raise SpoolError("which server? Name it with --url, or by the setting server_url")
    return url


def _runs(line: HttpLine, project: str) -> Iterator[_Run]:
    """The last one to start first."""
    cursor: str | None = ""
    while cursor is not None:
        path = f"/v1/runs?project={quote(project, safe='')}&limit={_PAGE}" + (f"&cursor={cursor}" if cursor else "")
        with line.ask("GET", path, _HEADERS) as answered:
            _check(line, answered)
            document = answered.read(_MAX_LIST_BYTES)
        try:
            page = orjson.loads(document)
            runs, cursor = _RUNS.validate_python(page["items"]), page["next"]
        except (orjson.JSONDecodeError, ValidationError, KeyError, TypeError):
            raise SpoolError(f"{line.url}: does not answer as roofwatch api does; check --url") from None
        yield from runs


def _fetch(line: HttpLine, run: _Run, folder: Path) -> Fetched:
    with line.ask("GET", f"/v1/runs/{run.run_id}/record", _HEADERS) as answered:
        _check(line, answered)
        document = answered.read(MAX_RECORD_BYTES + 1)
    record = RunRecord.from_json(document, name=f"run {run.run_id} of {line.url}")
    path = folder / f"{run.run_id}{RECORD_SUFFIX}"
    record.write(path)
    return Fetched(run.commit.sha, run.run_id, path)


def _check(line: HttpLine, answered: Answered) -> None:
    if answered.status != _FOUND:
        body = answered.read(_MAX_REASON_BYTES).decode(errors="replace")
        raise SpoolError(line.said(f"{line.url}: HTTP {answered.status}: {body}"))
