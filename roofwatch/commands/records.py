"""Commands for record files and the other files of a run: store, send, fetch and compare them."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from roofwatch.commands.options import (
    AsJson,
    ComparedSide,
    CompareOptions,
    Keep,
    Output,
    ServerUrl,
    StoreUrl,
    shared_options,
)
from roofwatch.console.terminal import (
    make_table,
    print_error,
    print_or_write,
    print_result,
    write_text,
)
from roofwatch.model.optional import map_optional

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.table import Table

    from roofwatch.ci.history.recent import KernelSuspicion
    from roofwatch.ci.report.not_measured import NotMeasured
    from roofwatch.model.history import Regression
    from roofwatch.model.record import RunRecord

app = typer.Typer()
artefact_app = typer.Typer(
    help="Add, list and get files of a run: traces, profiler reports, disassembly.",
    no_args_is_help=True,
)
app.add_typer(artefact_app, name="artefact")

RunId = Annotated[UUID, typer.Argument(metavar="RUN", help="Run id.")]


@app.command()
def ingest(
    files: Annotated[list[Path], typer.Argument(help="Record files, or folders of them.")],
    *,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Replace a stored run whose content differs from the file."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Store records in the database, each once, and analyse their projects for regressions."""
    from roofwatch.reporting.records import read_record_files

    # an unreadable file stops the command before anything is stored
    store_and_judge(read_record_files(files), replaces=replace, as_json=as_json)


def store_and_judge(
    records: "Iterable[tuple[Path, RunRecord]]",
    *,
    replaces: bool = False,
    as_json: bool,
) -> None:
    """Store records, each with its file, analyse their projects, and print what was found."""
    from roofwatch.ci.history.analyse import analyse_project
    from roofwatch.ci.history.recent import possible_changes
    from roofwatch.configuration.arguments import open_configured_store
    from roofwatch.db.ingest.ingest import IngestResult, ingest_record
    from roofwatch.db.queries import questions
    from roofwatch.store.database_source import DatabaseSource
    from roofwatch.store.transfer import store_artefacts
    from roofwatch.tables.stored import possible_lines, regressions_table

    results: list[IngestResult] = []
    lacking: list[str] = []
    regressions: list[Regression] = []
    possible: list[KernelSuspicion] = []
    with open_configured_store() as engine:
        # a history may not fit in memory, so each record is gone once it is stored
        for file, record in records:
            results.append(ingest_record(engine, record, replaces=replaces))
            lacking += store_artefacts(
                engine=engine,
                run_id=record.run_id,
                artefacts=record.artefacts,
                file=file,
            )
        projects = sorted({result.project for result in results})
        for project in projects:
            judged = analyse_project(engine, project)
            recent = DatabaseSource(engine).ask(questions.read_recent_runs, project)
            regressions += judged
            possible += possible_changes(recent, judged)
    new_count = sum(result.was_new for result in results)
    replaced_count = sum(result.was_replaced for result in results)
    counts = [f"{new_count} stored"]
    if replaced_count:
        counts.append(f"{replaced_count} replaced")
    counts.append(f"{len(results) - new_count - replaced_count} already stored")
    lines: list[Table | str] = [f"records: {', '.join(counts)}; projects: {', '.join(projects)}"]
    if regressions:
        lines.append(regressions_table(regressions))
    lines += possible_lines(possible)
    # The JSON has the reasons, too.
    if not as_json:
        for reason in lacking:
            print_error(reason)
    print_result(
        {
            "runs": results,
            "regressions": regressions,
            "possible_changes": possible,
            "lacking_artefacts": lacking,
        },
        *lines,
        as_json=as_json,
    )


@app.command()
def push(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Record files, or folders of them. Default: records that wait in the spool."
        ),
    ] = None,
    *,
    url: ServerUrl = None,
    spool: Annotated[
        Path | None, typer.Option(help="Folder of waiting records. Default: spool in data_dir.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Send records to a server, with the token in ROOFWATCH_TOKEN. A record stays in the spool
    until acknowledged.

    Exit status 1: the server refused a record or one of its artefacts. 2: a record still waits in
    the spool.
    """
    from roofwatch.collector.outbox.artefact_folder import ArtefactFolder
    from roofwatch.reporting.records import read_record_files
    from roofwatch.store.transfer import exit_status, sender_and_spool, summary

    sender, waiting = sender_and_spool(url, spool)
    # A record is in the spool before the network is asked.
    for file, record in read_record_files(files or []):
        waiting.submit(record, ArtefactFolder.beside(file))
    delivery = waiting.deliver(sender)
    print_result(delivery, *summary(delivery, waiting), as_json=as_json)
    raise typer.Exit(exit_status(delivery))


@app.command()
def fetch(
    commits: Annotated[list[str], typer.Argument(metavar="COMMIT", help="Full or short shas.")],
    *,
    project: Annotated[str, typer.Option(help="Project of the commits.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write to.")] = Path(
        "roofwatch-records"
    ),
    url: ServerUrl = None,
    as_json: AsJson = False,
) -> None:
    """Download the latest record of each commit,
    with a token of scope `read` in ROOFWATCH_TOKEN.
    """
    from roofwatch.store.transfer import fetch_records

    fetched = fetch_records(url, project, commits, output)
    records = [
        {"commit_sha": run.commit.sha, "run_id": run.run_id, "path": str(path)}
        for run, path in fetched
    ]
    lines = [f"written: {path} (commit {run.commit.sha[:12]})" for run, path in fetched]
    print_result({"records": records}, *lines, as_json=as_json)


@app.command()
@shared_options()
def compare(
    base: ComparedSide,
    head: ComparedSide,
    *,
    options: CompareOptions,
    as_json: AsJson = False,
) -> None:
    """Compare two records. Exit status 1: a regression; 2: inconclusive."""
    from roofwatch.ci.report.comment import verdict_line
    from roofwatch.tables.comparison import (
        claim_counts,
        judgement_tables,
        next_steps,
        remark_lines,
    )

    sides, judgement = options.judge(base, head)
    runs = [sides.base.run_id, sides.head.run_id]
    status = judgement.exit_code
    document = {
        "runs": runs,
        "summary": verdict_line(judgement),
        "claims": claim_counts(judgement),
        "judgement": judgement,
        "exit_code": status,
    }
    print_result(
        document,
        verdict_line(judgement),
        *judgement_tables(judgement),
        *remark_lines(judgement),
        *next_steps(judgement),
        as_json=as_json,
    )
    raise typer.Exit(status)


@app.command()
@shared_options()
def report(
    base: Annotated[
        Path,
        typer.Argument(help="Folder or note that ab wrote, or the base as for compare."),
    ],
    head: Annotated[
        Path | None, typer.Argument(help="Record file, commit sha or run id; none for a folder.")
    ] = None,
    *,
    output: Output = None,
    junit: Annotated[Path | None, typer.Option(help="Also write JUnit XML to this file.")] = None,
    sarif: Annotated[
        Path | None, typer.Option(help="Also write SARIF to this file, for code scanning.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Also write one HTML page with a figure, to share.")
    ] = None,
    options: CompareOptions,
) -> None:
    """Write the pull-request comment as Markdown, for what ab wrote or for two records.

    Exit status as for compare. Without records: 0 if the change touches no kernel, 1 if the head
    cannot be loaded.
    """
    from roofwatch import __version__
    from roofwatch.ci.report.comment import to_markdown
    from roofwatch.ci.report.interchange import to_junit, to_sarif
    from roofwatch.ci.report.not_measured import NotMeasured
    from roofwatch.model.errors import RecordError
    from roofwatch.reporting.report_files import read_measured
    from roofwatch.store.reading import Sides

    if head is None:
        measured = read_measured([base])
        if measured is None:
            raise RecordError(f"{base}: contains no record and no note of roofwatch ab")
        # The change touches no kernel, or a side could not be loaded.
        if isinstance(measured, NotMeasured):
            _write_note(
                measured,
                output=output,
                junit=junit,
                sarif=sarif,
                html=html,
            )
            raise typer.Exit(measured.exit_code)
        judgement = options.judge_sides(Sides(measured.base, measured.head))
    else:
        _, judgement = options.judge(base, head)
    if junit is not None:
        write_text(junit, to_junit(judgement))
    if sarif is not None:
        write_text(sarif, to_sarif(judgement, version=__version__))
    if html is not None:
        from roofwatch.reporting.pages import report_page

        write_text(html, report_page(judgement))
    print_or_write(to_markdown(judgement), output)
    raise typer.Exit(judgement.exit_code)


def _write_note(
    note: "NotMeasured",
    *,
    output: Path | None,
    junit: Path | None,
    sarif: Path | None,
    html: Path | None,
) -> None:
    """Write why there are no records in every format that was asked for."""
    from roofwatch import __version__
    from roofwatch.ci.report.note_formats import note_to_junit, note_to_sarif

    if junit is not None:
        write_text(junit, note_to_junit(note))
    if sarif is not None:
        write_text(sarif, note_to_sarif(note, version=__version__))
    if html is not None:
        from roofwatch.reporting.pages import page

        write_text(html, page(note.head.sha[:12], note.to_markdown()))
    print_or_write(note.to_markdown(), output)


@app.command()
def schema(*, output: Output = None) -> None:
    """Print the JSON Schema of the record."""
    from roofwatch.model.record import json_schema

    print_or_write(json.dumps(json_schema(), indent=2, sort_keys=True) + "\n", output)


@artefact_app.command("add")
def add(
    record: Annotated[Path, typer.Argument(help="Record file of the run.")],
    files: Annotated[list[Path], typer.Argument(help="Files to add.")],
    *,
    keep: Keep = None,
    as_json: AsJson = False,
) -> None:
    """Attach redacted copies of files to a record that was not sent yet; push and ingest take them
    along.
    """
    from roofwatch.collector.redaction import Redaction, parse_kinds
    from roofwatch.model.record import RunRecord
    from roofwatch.store.transfer import name_artefacts

    redaction = Redaction.of_this_machine(kept_kinds=map_optional(parse_kinds, keep))
    named = name_artefacts(
        record=RunRecord.read(record),
        path=record,
        files=files,
        redaction=redaction,
    )
    named.write(record)
    line = f"written: {record} ({len(named.artefacts)} artefact(s))"
    print_result({"artefacts": named.artefacts}, line, as_json=as_json)


@artefact_app.command("list")
def list_(run: RunId, *, url: StoreUrl = None, as_json: AsJson = False) -> None:
    """List the files of a run."""
    from roofwatch.model.metrics import format_bytes
    from roofwatch.store.reading import open_source

    with open_source(url) as source:
        artefacts = source.list_artefacts(run)
    rows = [
        (
            artefact.name,
            artefact.kind,
            format_bytes(artefact.size_bytes),
            artefact.sha256[:12],
            "yes" if artefact.is_stored else "no, never sent",
        )
        for artefact in artefacts
    ]
    table = make_table(
        ("name", "kind", "size", "sha256", "stored"), rows, title=f"artefacts of run {run}"
    )
    print_result({"artefacts": artefacts}, table, as_json=as_json)


@artefact_app.command("get")
def get(
    run: RunId,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Files to get. Default: all.")
    ] = None,
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write to.")] = Path(),
    url: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Write the files of a run into a folder, each verified by its sha256; existing files are not
    overwritten.
    """
    from roofwatch.store.reading import open_source
    from roofwatch.store.transfer import fetch_artefacts

    with open_source(url) as source:
        written = fetch_artefacts(
            source=source,
            run_id=run,
            names=names or [],
            folder=output,
        )
    lines = [f"written: {path}" for path in written] or [f"run {run} has no stored artefacts"]
    print_result({"files": [str(path) for path in written]}, *lines, as_json=as_json)
