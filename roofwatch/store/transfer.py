"""Send records to a server, and fetch records from one."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from roofwatch.collector.errors import SpoolError
from roofwatch.collector.outbox.http_client import TOKEN_VARIABLE, HttpSender
from roofwatch.collector.outbox.spool import Delivery, Spool
from roofwatch.options import EXIT_CANNOT, EXIT_WRONG
from roofwatch.records import RECORD_SUFFIX
from roofwatch.settings import load_settings
from roofwatch.store.server import server_at, server_url
from roofwatch.store.server_source import RUNS, ServerSource

_RUNS_PER_PAGE = 500


def sender_and_spool(url: str | None, folder: Path | None) -> tuple[HttpSender, Spool]:
    """Open the sender and the spool folder; defaults come from the settings, the token from the environment.

    Raises:
        SpoolError: no server is named, or its URL cannot be used.
    """
    spool = Spool(folder or load_settings().data_dir / "spool")
    return HttpSender(server_url(url), os.environ.get(TOKEN_VARIABLE) or None), spool


def summary(delivery: Delivery, spool: Spool) -> list[str]:
    """Return one line for the sent records, and one for each record that was not sent."""
    if delivery == Delivery():
        return [f"no records to send in {spool.folder}; name record files or their folder"]
    lines = [f"{len(delivery.sent)} record(s) sent and acknowledged"]
    lines += [f"refused: {spool.folder / 'refused' / name}: {reason}" for name, reason in delivery.refused]
    lines += [f"sent without an artefact: {name}: {reason}" for name, reason in delivery.incomplete]
    lines += [f"kept for later: {spool.folder / name}: {reason}" for name, reason in delivery.left]
    return lines


def exit_status(delivery: Delivery) -> int:
    if delivery.left:
        return EXIT_CANNOT
    return EXIT_WRONG if delivery.refused or delivery.incomplete else 0


@dataclass(frozen=True)
class FetchedRecord:
    commit_sha: str
    run_id: UUID
    path: Path


def fetch_records(url: str | None, project: str, commits: Sequence[str], folder: Path) -> list[FetchedRecord]:
    """Write the newest record of each commit into a folder, named by its run. Runs of a modified work tree are ignored.

    Args:
        url: Server; None for the setting `server_url`. The token comes from the environment.
        project: Project name.
        commits: Shas, may be abbreviated.
        folder: Created if missing.

    Raises:
        SpoolError: the server cannot be reached, or has no run of a commit.
        RecordError: the answer is not a record, or it cannot be written.
    """
    source = ServerSource(server_at(server_url(url)))
    wanted = dict.fromkeys(commits)
    newest: dict[str, tuple[str, UUID]] = {}
    for run in source.server.pages("/v1/runs", {"project": project}, RUNS, size=_RUNS_PER_PAGE):
        for commit in wanted.keys() - newest.keys():
            if run.commit.sha.startswith(commit) and not run.is_dirty:
                newest[commit] = run.commit.sha, UUID(run.run_id)
        if len(newest) == len(wanted):
            break
    missing = [commit for commit in wanted if commit not in newest]
    if missing:
        raise SpoolError(f"{source.server.url}: project {project} has no run of {', '.join(missing)}")
    fetched = []
    for sha, run_id in (newest[commit] for commit in wanted):
        path = folder / f"{run_id}{RECORD_SUFFIX}"
        source.load_record(run_id).write(path)
        fetched.append(FetchedRecord(sha, run_id, path))
    return fetched
