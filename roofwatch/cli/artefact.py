"""Commands for the files of a run: traces, profiler reports, disassembly."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from roofwatch.options import AsJson, Keep, StoreUrl
from roofwatch.terminal import print_json, print_note, print_table

# Commands import what they need, to keep `roofwatch --help` quick.
app = typer.Typer()
artefact_app = typer.Typer(
    help="Add, list and get files of a run: traces, profiler reports, disassembly.", no_args_is_help=True
)
app.add_typer(artefact_app, name="artefact")

RunId = Annotated[UUID, typer.Argument(metavar="RUN", help="Run id.", show_default=False)]


@artefact_app.command("add")
def add(
    record: Annotated[Path, typer.Argument(help="Record file of the run.", show_default=False)],
    files: Annotated[list[Path], typer.Argument(help="Files to add.", show_default=False)],
    *,
    kind: Annotated[
        str | None,
        typer.Option(
            help="trace, ncu_report, nsys_export, disassembly, html or other. Default: from the file name.",
            show_default=False,
        ),
    ] = None,
    keep: Keep = None,
    as_json: AsJson = False,
) -> None:
    """Attach redacted copies of files to a record that was not sent yet; push and ingest take them along."""
    from roofwatch.collector.errors import RecordError
    from roofwatch.collector.record.record import ArtefactKind, RunRecord
    from roofwatch.collector.redaction import Redaction, parse_kept
    from roofwatch.store.artefacts import name_artefacts

    if kind is not None and kind not in set(ArtefactKind):
        raise RecordError(f"--kind {kind}: unknown; choose one of {', '.join(ArtefactKind)}")
    redaction = Redaction.of_this_machine(kept=None if keep is None else parse_kept(keep))
    named = name_artefacts(RunRecord.read(record), record, files, kind=kind, redaction=redaction)
    named.write(record)
    if as_json:
        print_json({"artefacts": named.artefacts})
    else:
        print_note(f"written: {record} ({len(named.artefacts)} artefact(s))")


@artefact_app.command("list")
def list_(run: RunId, *, url: StoreUrl = None, as_json: AsJson = False) -> None:
    """List the files of a run."""
    from roofwatch import tables
    from roofwatch.store.reading import open_source

    with open_source(url) as source:
        artefacts = source.list_artefacts(run)
    if as_json:
        print_json({"artefacts": artefacts})
    elif artefacts:
        print_table(tables.artefacts(artefacts))
    else:
        print_note(f"run {run} has no artefacts")


@artefact_app.command("get")
def get(
    run: RunId,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Files to get. Default: all.", show_default=False)
    ] = None,
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write to.")] = Path(),
    url: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Write the files of a run into a folder, each verified by its sha256; existing files are not overwritten."""
    from roofwatch.store.artefacts import fetch_artefacts
    from roofwatch.store.reading import open_source

    with open_source(url) as source:
        written = fetch_artefacts(source, run, names or [], output)
    if as_json:
        print_json({"files": [str(path) for path in written]})
    else:
        print_note("\n".join(f"written: {path}" for path in written) or f"run {run} has no stored artefacts")
