"""Commands for the files that belong to runs: traces, reports of profilers, disassembly, pages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from roofwatch.options import AsJson, Keep, StoreUrl

# Everything else is imported by the command that needs it: `roofwatch --help` loads no torch, database or browser.
app = typer.Typer()
artefact_app = typer.Typer(
    help="Files that belong to runs: traces, reports of profilers, disassembly, pages.", no_args_is_help=True
)
app.add_typer(artefact_app, name="artefact")

RunId = Annotated[UUID, typer.Argument(metavar="RUN", help="A run's id.", show_default=False)]


@artefact_app.command("add")
def add(
    record: Annotated[Path, typer.Argument(help="Record file of the run.", show_default=False)],
    files: Annotated[list[Path], typer.Argument(help="What belongs to it.", show_default=False)],
    *,
    kind: Annotated[
        str | None,
        typer.Option(
            help="What they are: trace, ncu_report, nsys_export, disassembly, html or other. Left out: by their names.",
            show_default=False,
        ),
    ] = None,
    keep: Keep = None,
    as_json: AsJson = False,
) -> None:
    """Name files in a record that was not sent yet, and put copies beside it without what must not leave the machine.

    They go with the record wherever it is pushed or ingested.
    """
    from roofwatch.collector.errors import RecordError
    from roofwatch.collector.record.record import ArtefactKind, RunRecord
    from roofwatch.collector.redaction import Redaction, parse_kept
    from roofwatch.store.artefacts import name_artefacts
    from roofwatch.terminal import print_json, print_note

    if kind is not None and kind not in set(ArtefactKind):
        raise RecordError(f"--kind {kind}: not known; it is one of {', '.join(ArtefactKind)}")
    redaction = Redaction.of_this_machine(kept=None if keep is None else parse_kept(keep))
    named = name_artefacts(RunRecord.read(record), record, files, kind=kind, redaction=redaction)
    named.write(record)
    if as_json:
        print_json({"artefacts": named.artefacts})
    else:
        print_note(f"written: {record} ({len(named.artefacts)} artefact(s))")


@artefact_app.command("list")
def list_(run: RunId, *, url: StoreUrl = None, as_json: AsJson = False) -> None:
    """List the files that a run's record names."""
    from roofwatch import tables
    from roofwatch.store.artefacts import source_of_artefacts
    from roofwatch.terminal import print_json, print_note, print_table

    with source_of_artefacts(url) as source:
        artefacts = source.list(run)
    if as_json:
        print_json({"artefacts": artefacts})
    elif artefacts:
        print_table(tables.artefacts(artefacts))
    else:
        print_note(f"run {run} names no artefacts")


@artefact_app.command("get")
def get(
    run: RunId,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Only these. Left out: all.", show_default=False)
    ] = None,
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder that they go into.")] = Path(),
    url: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Write the files of a run into a folder, each checked against the record's sha256; no other is replaced."""
    from roofwatch.store.artefacts import fetch_artefacts, source_of_artefacts
    from roofwatch.terminal import print_json, print_note

    with source_of_artefacts(url) as source:
        written = fetch_artefacts(source, run, names or [], output)
    if as_json:
        print_json({"files": [str(path) for path in written]})
    else:
        print_note("\n".join(f"written: {path}" for path in written) or f"run {run} has no artefacts that are stored")
