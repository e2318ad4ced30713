"""Commands for record files and the other files of a run: store, send, fetch, compare, import and
export them.
"""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from roofwatch.model.optional import map_optional
from roofwatch.options import (
    AsJson,
    ComparedSide,
    CompareOptions,
    Keep,
    Output,
    ServerUrl,
    StoreUrl,
    shared_options,
)
from roofwatch.terminal import make_table, print_error, print_or_write, print_result, write_text

if TYPE_CHECKING:
    from rich.table import Table

    from roofwatch.ci.report.not_measured import NotMeasured

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
    from roofwatch.arguments import open_configured_store
    from roofwatch.ci.history.analyse import analyse_project
    from roofwatch.ci.history.recent import possible_changes
    from roofwatch.comparison_tables import possible_lines, regressions_table
    from roofwatch.db.ingest.ingest import ingest_record
    from roofwatch.db.queries import questions
    from roofwatch.records import read_record_files
    from roofwatch.store.database_source import DatabaseSource
    from roofwatch.store.transfer import store_artefacts

    # an unreadable file stops the command before anything is stored
    read_files = read_record_files(files)
    with open_configured_store() as engine:
        results = [ingest_record(engine, record, replaces=replace) for _, record in read_files]
        lacking: list[str] = []
        for file, record in read_files:
            lacking += store_artefacts(engine, record.run_id, record.artefacts, file)
        projects = sorted({result.project for result in results})
        regressions, possible = [], []
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
    from roofwatch.records import read_record_files
    from roofwatch.store.transfer import exit_status, sender_and_spool, summary

    sender, waiting = sender_and_spool(url, spool)
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
    base: ComparedSide, head: ComparedSide, *, options: CompareOptions, as_json: AsJson = False
) -> None:
    """Compare two records. Exit status 1: a regression; 2: inconclusive."""
    from roofwatch.comparison_tables import (
        claim_counts,
        judgement_tables,
        next_steps,
        remark_lines,
        verdict_line,
    )

    sides, judgement = options.judge(base, head)
    runs, status = [sides.base.run_id, sides.head.run_id], judgement.exit_code
    document = {
        "runs": runs,
        "summary": verdict_line(judgement),
        "claims": claim_counts(judgement),
        "judgement": judgement,
        "exit_code": status,
    }
    print_result(
        document,
        *judgement_tables(judgement),
        *remark_lines(judgement),
        verdict_line(judgement),
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
    from roofwatch.ci.report.findings import to_junit, to_sarif
    from roofwatch.ci.report.not_measured import NotMeasured
    from roofwatch.model.errors import RecordError
    from roofwatch.report_files import read_measured
    from roofwatch.store.reading import Sides

    if head is None:
        measured = read_measured([base])
        if measured is None:
            raise RecordError(f"{base}: contains no record and no note of roofwatch ab")
        if isinstance(measured, NotMeasured):
            _write_note(measured, output=output, junit=junit, sarif=sarif, html=html)
            raise typer.Exit(measured.exit_code)
        judgement = options.judge_sides(Sides(measured.base, measured.head))
    else:
        _, judgement = options.judge(base, head)
    if junit is not None:
        write_text(junit, to_junit(judgement))
    if sarif is not None:
        write_text(sarif, to_sarif(judgement, version=__version__))
    if html is not None:
        from roofwatch.pages import report_page

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
        from roofwatch.pages import page

        write_text(html, page(note.head.sha[:12], note.to_markdown()))
    print_or_write(note.to_markdown(), output)


@app.command()
def schema(*, output: Output = None) -> None:
    """Print the JSON Schema of the record."""
    from roofwatch.model.record import json_schema

    print_or_write(json.dumps(json_schema(), indent=2, sort_keys=True) + "\n", output)


@app.command("import")
def import_(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Result files of other tools, or folders of them.")
    ] = None,
    *,
    git_history: Annotated[
        str | None,
        typer.Option(metavar="BRANCH:PATH", help="Every version of a file on a branch."),
    ] = None,
    format_name: Annotated[
        str | None, typer.Option("--as", help="Format. Default: recognised.")
    ] = None,
    project: Annotated[
        str | None, typer.Option(help="Project. Default: the file's, or this repository's.")
    ] = None,
    commit: Annotated[
        str | None, typer.Option(help="Measured commit. Default: the one that the file names.")
    ] = None,
    direction: Annotated[
        list[str] | None,
        typer.Option(help="Which values of a metric are better: metric=lower or metric=higher."),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--map", help="Columns of a table (--as table): case=a,b value=c unit=ms."),
    ] = None,
    commits: Annotated[
        Path | None,
        typer.Option(help="Commits without a repository: lines of SHA, date and subject."),
    ] = None,
    repository: Annotated[
        Path | None,
        typer.Option(help="Repository of the commits: tells whether a kernel's sources changed."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what each number becomes; write nothing.")
    ] = False,
    store: Annotated[
        bool, typer.Option("--ingest", help="Store the records too, and judge the history.")
    ] = False,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the records.")] = Path(
        "roofwatch-records"
    ),
    as_json: AsJson = False,
) -> None:
    """Turn results of pytest-benchmark, Google Benchmark, asv, nvbench, TritonBench, vLLM and
    others into records.

    Nothing is written if a file is damaged.
    """
    from roofwatch.importers.commit_list import read_commit_list
    from roofwatch.importers.git_history import versions_of
    from roofwatch.importers.records import (
        import_file,
        known_files,
        mapping,
        mapping_table,
        to_records,
        turned,
        with_controls,
    )
    from roofwatch.importers.source_identity import with_source_identity
    from roofwatch.importers.table_map import TableMap
    from roofwatch.settings import load_settings

    table = TableMap.parse(columns) if columns else None
    configured = load_settings().import_
    presets = {
        name: TableMap.of(preset, name=f"import.presets.{name}")
        for name, preset in configured.presets.items()
    }
    is_table = table is not None or format_name in presets
    with ExitStack() as closing:
        paths = list(files or ())
        if git_history is not None:
            paths += closing.enter_context(versions_of(repository or Path.cwd(), git_history))
        readable = paths if is_table else known_files(paths)
        imported_files = [
            (file, *import_file(file, format_name, table=table, presets=presets))
            for file in readable
        ]
    if not imported_files:
        raise typer.BadParameter("name files, or --git-history BRANCH:PATH")
    runs = []
    for file, name, run in imported_files:
        if configured.controls:
            run = with_controls(run, configured.controls)
        if direction:
            run = turned(run, direction)
        runs.append((file, name, run))
    if dry_run:
        mapped = [mapping(name, run) for _, name, run in runs]
        tables = [mapping_table(file, name, run) for file, name, run in runs]
        print_result(mapped[0] if len(mapped) == 1 else mapped, *tables, as_json=as_json)
        return
    listed_commits = map_optional(read_commit_list, commits)
    written = []
    for file, _, run in runs:
        completed = run
        if listed_commits is not None:
            completed = listed_commits.complete(run)
        if repository is not None:
            completed = with_source_identity(completed, repository, commit)
        records = to_records(
            completed,
            file,
            project=project,
            revision=commit,
            folder=repository or Path.cwd(),
        )
        written += list(records)
    paths = [output / f"{record.commit.sha[:12]}-{record.run_id}.json.gz" for record in written]
    for record, path in zip(written, paths, strict=True):
        record.write(path)
    if store:
        ingest(paths, as_json=as_json)
        return
    values = sum(len(record.imported) for record in written)
    line = (
        f"written: {len(paths)} record(s) with {values} values to {output}; store them: "
        f"roofwatch ingest {output}"
    )
    print_result({"records": [str(path) for path in paths]}, line, as_json=as_json)


@app.command()
def export(
    files: Annotated[list[Path], typer.Argument(help="Record files, or folders of them.")],
    *,
    output: Output = None,
) -> None:
    """Write records as JSON for PyTorch's benchmark database (version 3)."""
    from roofwatch.importers.kernels import to_pytorch
    from roofwatch.records import read_record_files

    entries = to_pytorch(record for _, record in read_record_files(files))
    print_or_write(json.dumps(entries, indent=2) + "\n", output)


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
    from roofwatch.collector.redaction import Redaction, parse_kept
    from roofwatch.model.record import RunRecord
    from roofwatch.store.transfer import name_artefacts

    redaction = Redaction.of_this_machine(kept=map_optional(parse_kept, keep))
    named = name_artefacts(RunRecord.read(record), record, files, redaction)
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
        written = fetch_artefacts(source, run, names or [], output)
    lines = [f"written: {path}" for path in written] or [f"run {run} has no stored artefacts"]
    print_result({"files": [str(path) for path in written]}, *lines, as_json=as_json)
