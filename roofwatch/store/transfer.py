"""Send records to a server and fetch them; store and fetch the files that belong to runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from roofwatch.collector.outbox.artefact_folder import ArtefactFolder
from roofwatch.collector.outbox.http_client import TOKEN_VARIABLE, HttpSender
from roofwatch.collector.outbox.spool import Spool, SpoolDelivery
from roofwatch.collector.redaction import Redaction
from roofwatch.configuration.settings import load_settings
from roofwatch.console.terminal import EXIT_CANNOT, EXIT_WRONG
from roofwatch.model.errors import RecordError, SpoolError
from roofwatch.model.files import reason_of
from roofwatch.model.record import Artefact, RunRecord
from roofwatch.model.stored_results import RunSummary, StoredArtefact
from roofwatch.reporting.records import RECORD_SUFFIX
from roofwatch.store.server import RUNS, server_at, server_url

if TYPE_CHECKING:  # a machine that only measures has no SQLAlchemy
    from sqlalchemy import Engine

    from roofwatch.store.reading import Source


def sender_and_spool(url: str | None, folder: Path | None) -> tuple[HttpSender, Spool]:
    """Open the sender and the spool folder; defaults come from the settings, the token from the
    environment.

    Raises:
        SpoolError: no server is named, or its URL cannot be used.
    """
    spool = Spool(folder or load_settings().data_dir / "spool")
    return HttpSender(server_url(url), os.environ.get(TOKEN_VARIABLE) or None), spool


def summary(delivery: SpoolDelivery, spool: Spool) -> list[str]:
    """Return one line for the sent records, and one for each record that was not sent."""
    if delivery == SpoolDelivery():
        return [f"no records to send in {spool.folder}; name record files or their folder"]
    lines = [f"{len(delivery.sent)} record(s) sent and acknowledged"]
    lines += [
        f"refused: {spool.folder / 'refused' / name}: {reason}" for name, reason in delivery.refused
    ]
    lines += [f"sent without an artefact: {name}: {reason}" for name, reason in delivery.incomplete]
    for name, reason in delivery.left:
        lines.append(f"kept for later: {spool.folder / name}: {reason}")
    return lines


def exit_status(delivery: SpoolDelivery) -> int:
    # they are sent again later, so nothing is wrong yet
    if delivery.left:
        return EXIT_CANNOT
    if delivery.refused or delivery.incomplete:
        return EXIT_WRONG
    return 0


def fetch_records(
    url: str | None,
    project: str,
    commits: Sequence[str],
    folder: Path,
) -> list[tuple[RunSummary, Path]]:
    """Write the newest record of each commit into a folder, named by its run; return the runs with
    their files.

    Runs of a modified work tree are ignored. The URL defaults to the setting `server_url`; the
    token comes from the environment. Shas may be abbreviated.

    Raises:
        SpoolError: the server cannot be reached, or has no run of a commit.
        RecordError: the answer is not a record, or it cannot be written.
    """
    server = server_at(server_url(url))
    revisions = dict.fromkeys(commits)
    newest: dict[str, RunSummary] = {}
    for run in server.pages("/v1/runs", {"project": project}, RUNS):
        for commit in revisions.keys() - newest.keys():
            if run.commit.sha.startswith(commit) and not run.is_dirty:
                newest[commit] = run
        # older pages cannot have a newer run
        if len(newest) == len(revisions):
            break
    missing = [commit for commit in revisions if commit not in newest]
    if missing:
        raise SpoolError(f"{server.url}: project {project} has no run of {', '.join(missing)}")
    fetched = []
    for commit in revisions:
        run = newest[commit]
        path = folder / f"{run.run_id}{RECORD_SUFFIX}"
        server.load_record(UUID(run.run_id)).write(path)
        fetched.append((run, path))
    return fetched


def name_artefacts(
    record: RunRecord,
    path: Path,
    files: Sequence[Path],
    redaction: Redaction,
) -> RunRecord:
    """Copy files next to a record's file, and return the record with their names; files of the same
    name are replaced.

    The record itself is not written. Each kind is derived from the suffix.

    Raises:
        CollectorError: a file cannot be read, copied or redacted.
    """
    folder = ArtefactFolder.beside(path)
    new = [folder.add(file, redaction) for file in files]
    names = {artefact.name for artefact in new}
    # the folder beside the record has one file of each name
    if len(names) != len(new):
        raise RecordError(f"{path}: two of the files share one name; rename one")
    unchanged = [artefact for artefact in record.artefacts if artefact.name not in names]
    return record.model_copy(update={"artefacts": (*unchanged, *new)})


def store_artefacts(
    engine: Engine,
    run_id: UUID,
    artefacts: Sequence[Artefact],
    file: Path,
) -> list[str]:
    """Store the files of a record that are not stored yet; return one sentence for each that is
    missing.

    Raises:
        StoreError: the database failed, or a file differs from the record.
    """
    from sqlalchemy.orm import Session

    from roofwatch.db.ingest.artefacts import list_artefacts, store_artefact

    if not artefacts:
        return []
    with Session(engine) as session:
        waiting = {
            stored.sha256 for stored in list_artefacts(session, run_id) if not stored.is_stored
        }
    folder = ArtefactFolder.beside(file)
    missing = []
    for artefact in artefacts:
        # stored already, perhaps with another run that has the same file
        if artefact.sha256 not in waiting:
            continue
        path = folder.find(artefact)
        if path is None:
            missing.append(
                f"{file}: {artefact.name} is not in {folder.folder}; the run is stored without it"
            )
            continue
        with path.open("rb") as content:
            store_artefact(
                engine=engine,
                run_id=run_id,
                sha256=artefact.sha256,
                content=content,
            )
    return missing


def fetch_artefacts(
    source: Source,
    run_id: UUID,
    names: Sequence[str],
    folder: Path,
) -> list[Path]:
    """Write files of a run, by name or all that are stored, into a folder; return their paths.

    Raises:
        RecordError: a file is not stored, or exists in the folder already.
        SpoolError: the server failed.
        StoreError: the database failed.
    """
    chosen = _choose(source.list_artefacts(run_id), names, run_id)
    paths = [folder / artefact.name for artefact in chosen]
    for path in paths:
        if path.exists():
            raise RecordError(f"{path}: file exists; name another folder with -o")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"{folder}: cannot be created: {reason_of(error)}") from None
    for artefact, path in zip(chosen, paths, strict=True):
        source.fetch_artefact(run_id, artefact, path)
    return paths


def _choose(
    offered: Sequence[StoredArtefact],
    names: Sequence[str],
    run_id: UUID,
) -> list[StoredArtefact]:
    by_name = {artefact.name: artefact for artefact in offered}
    for name in names:
        if name not in by_name:
            raise RecordError(
                f"{name}: not a file of run {run_id}; it has {', '.join(by_name) or 'none'}"
            )
        if not by_name[name].is_stored:
            raise RecordError(
                f"{name}: not stored yet; push or ingest the record with its artefacts"
            )
    if not names:
        return [artefact for artefact in offered if artefact.is_stored]
    return [by_name[name] for name in names]
