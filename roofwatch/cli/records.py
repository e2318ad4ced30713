"""Commands that read, store, send and compare files."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roofwatch.options import AsJson, ComparedSide, CompareOptions, Output, ServerUrl, compare_options
from roofwatch.terminal import print_error, print_json, print_note, print_table, write_text

if TYPE_CHECKING:
    from uuid import UUID

    from roofwatch.collector.record.record import Artefact
    from roofwatch.db.ingest.ingest import IngestResult

# Commands import what they need, to keep `roofwatch --help` quick.
app = typer.Typer()


@app.command()
def read(
    file: Annotated[Path, typer.Argument(help="Profiler file; its format is detected.", show_default=False)],
    *,
    top: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="Show N kernels: the slowest of a trace, the first of a report. 0: all."),
    ] = 10,
    as_json: AsJson = False,
) -> None:
    """Show a profiler's file: a torch.profiler trace, or a report of Nsight Compute or Nsight Systems."""
    from roofwatch.collector.profiling.profile_file import read_profile
    from roofwatch.profiles.reading import tables

    profile = read_profile(file, top=top or None)
    if as_json:
        print_json(profile)
        return
    for table in tables(profile, top=top or None):
        print_table(table)


@app.command()
def ingest(
    files: Annotated[list[Path], typer.Argument(help="Record files, or folders of them.")],
    *,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a stored run whose content differs from the file.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Store records in the database, each once, and analyse their projects for regressions."""
    from roofwatch import tables
    from roofwatch.arguments import open_configured_store
    from roofwatch.ci.history.analyse import analyse_project
    from roofwatch.db.ingest.ingest import ingest_record
    from roofwatch.records import read_record_files
    from roofwatch.store.artefacts import store_artefacts

    found = read_record_files(files)  # an unreadable file stops the command before anything is stored
    results: list[IngestResult] = []
    named: list[tuple[UUID, tuple[Artefact, ...], Path]] = []
    with open_configured_store() as engine:
        for file, record in found:
            results.append(ingest_record(engine, record, replaces=replace))
            named.append((record.run_id, record.artefacts, file))
        lacking = [reason for each in named for reason in store_artefacts(engine, *each)]
        projects = sorted({result.project for result in results})
        regressions = [found for project in projects for found in analyse_project(engine, project)]
    if as_json:
        print_json({"runs": results, "regressions": regressions, "lacking_artefacts": lacking})
        return
    for reason in lacking:
        print_error(reason)
    new, replaced = sum(result.was_new for result in results), sum(result.was_replaced for result in results)
    counts = [f"{new} stored", *([f"{replaced} replaced"] if replaced else [])]
    counts.append(f"{len(results) - new - replaced} already stored")
    print_note(f"records: {', '.join(counts)}; projects: {', '.join(projects)}")
    if regressions:
        print_table(tables.regressions(regressions))


@app.command()
def push(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Record files, or folders of them. Default: records that wait in the spool."),
    ] = None,
    *,
    url: ServerUrl = None,
    spool: Annotated[
        Path | None, typer.Option(help="Folder of waiting records. Default: spool in data_dir.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Send records to a server, with the token in ROOFWATCH_TOKEN. A record stays in the spool until acknowledged.

    Exit status 1: the server refused a record or one of its artefacts. 2: a record still waits in the spool.
    """
    from roofwatch.collector.outbox.artefact_folder import ArtefactFolder
    from roofwatch.records import read_record_files
    from roofwatch.store.transfer import exit_status, sender_and_spool, summary

    sender, waiting = sender_and_spool(url, spool)
    for file, record in read_record_files(files or []):
        waiting.submit(record, ArtefactFolder.beside(file))
    delivery = waiting.deliver(sender)
    if as_json:
        print_json(delivery)
    else:
        print_note("\n".join(summary(delivery, waiting)))
    raise typer.Exit(exit_status(delivery))


@app.command()
def fetch(
    commits: Annotated[list[str], typer.Argument(metavar="COMMIT", help="Full or short shas.", show_default=False)],
    *,
    project: Annotated[str, typer.Option(help="Project of the commits.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write to.")] = Path("roofwatch-records"),
    url: ServerUrl = None,
    as_json: AsJson = False,
) -> None:
    """Download the latest record of each commit, with a token of scope `read` in ROOFWATCH_TOKEN."""
    from roofwatch.store.transfer import fetch_records

    fetched = fetch_records(url, project, commits, output)
    if as_json:
        print_json({"records": [asdict(one) | {"path": str(one.path)} for one in fetched]})
    else:
        print_note("\n".join(f"written: {one.path} (commit {one.commit_sha[:12]})" for one in fetched))


@app.command()
@compare_options()
def compare(base: ComparedSide, head: ComparedSide, *, options: CompareOptions, as_json: AsJson = False) -> None:
    """Compare two records. Exit status 1: a regression; 2: inconclusive."""
    from roofwatch.ci.verdicts import exit_code
    from roofwatch.comparison_tables import print_judgement

    sides, judgement = options.judge(base, head)
    if as_json:
        runs = [sides.base.run_id, sides.head.run_id]
        print_json({"runs": runs, "judgement": judgement, "exit_code": exit_code(judgement.verdict)})
    else:
        print_judgement(judgement)
    raise typer.Exit(exit_code(judgement.verdict))


@app.command()
@compare_options()
def report(
    base: ComparedSide,
    head: ComparedSide,
    *,
    output: Output = None,
    junit: Annotated[Path | None, typer.Option(help="Also write JUnit XML to this file.", show_default=False)] = None,
    sarif: Annotated[
        Path | None, typer.Option(help="Also write SARIF to this file, for code scanning.", show_default=False)
    ] = None,
    options: CompareOptions,
) -> None:
    """Write the pull-request comment for two records as Markdown. Exit status as for compare."""
    from roofwatch import __version__
    from roofwatch.ci.report.comment import to_markdown
    from roofwatch.ci.report.interchange import to_junit, to_sarif
    from roofwatch.ci.verdicts import exit_code

    _, judgement = options.judge(base, head)
    if junit is not None:
        write_text(junit, to_junit(judgement))
    if sarif is not None:
        write_text(sarif, to_sarif(judgement, version=__version__))
    _print_or_write(to_markdown(judgement), output)
    raise typer.Exit(exit_code(judgement.verdict))


@app.command()
def schema(*, output: Output = None) -> None:
    """Print the JSON Schema of the record."""
    from roofwatch.collector.record.record import json_schema

    _print_or_write(json.dumps(json_schema(), indent=2, sort_keys=True) + "\n", output)


def _print_or_write(text: str, output: Path | None) -> None:
    if output is None:
        print(text, end="")
    else:
        write_text(output, text)
        print_note(f"written: {output}")
