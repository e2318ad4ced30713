"""Commands that exchange results with other tools."""

import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roofwatch.commands.options import AsJson, Output
from roofwatch.commands.records import store_and_judge
from roofwatch.console.terminal import print_error, print_or_write, print_result, progress

if TYPE_CHECKING:
    from roofwatch.collector.runs.run_plan import OnProgress
    from roofwatch.importers import ImportedRun
    from roofwatch.importers.machine_code import CompiledCommits
    from roofwatch.model.record import RunRecord

app = typer.Typer()


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
    suite: Annotated[
        Path | None,
        typer.Option(help="Benchmark files to compile at each commit. Default: the repository's."),
    ] = None,
    compile_suite: Annotated[
        bool,
        typer.Option(
            "--compile/--no-compile", help="Compile the suite of the repository at each commit."
        ),
    ] = True,
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
    from roofwatch.configuration.settings import load_settings
    from roofwatch.importers.commit_list import read_commit_list
    from roofwatch.importers.dry_run import mapping, mapping_table
    from roofwatch.importers.reading import with_controls, with_directions
    from roofwatch.importers.records import to_records
    from roofwatch.importers.source_identity import with_source_identity

    configured = load_settings().import_
    runs: list[tuple[Path, str, ImportedRun]] = []
    for file, name, run in _read_files(
        list(files or ()),
        git_history,
        repository,
        format_name=format_name,
        columns=columns or [],
        configured_presets=configured.presets,
    ):
        marked = with_controls(run, configured.controls)
        runs.append((file, name, with_directions(marked, direction or ())))
    # nothing is read from a repository yet, so it is quick
    if dry_run:
        if not as_json:
            for file, _, run in runs:
                _print_notes(file, run.notes)
        mapped = [mapping(name, run) for _, name, run in runs]
        tables = [mapping_table(file, name, run) for file, name, run in runs]
        print_result(mapped[0] if len(mapped) == 1 else mapped, *tables, as_json=as_json)
        return
    listed = None if commits is None else read_commit_list(commits)
    records: list[RunRecord] = []
    with progress("import") as on_progress:
        # compiling takes minutes, so it can be left out
        compiled = None
        if repository is not None and compile_suite:
            compiled = _compiled_commits(suite, repository, on_progress)
        for file, _, run in runs:
            completed = run if listed is None else listed.complete(run)
            if repository is not None:
                completed = with_source_identity(completed, repository, commit)
            if compiled is not None:
                completed = compiled.complete(completed, commit)
            records.extend(
                to_records(
                    completed,
                    file,
                    project=project,
                    revision=commit,
                    folder=repository or Path.cwd(),
                )
            )
    notes = [f"{file}: {note}" for file, _, run in runs for note in run.notes]
    if compiled is not None:
        notes += compiled.notes
    if not as_json:
        for note in notes:
            print_error(note)
    written: list[tuple[Path, RunRecord]] = []
    # in the order of the history, as the analysis expects it
    for record in sorted(records, key=_in_order):
        path = output / f"{record.commit.sha[:12]}-{record.run_id}.json.gz"
        record.write(path)
        written.append((path, record))
    if store:
        store_and_judge(written, as_json=as_json)
        return
    paths = [path for path, _ in written]
    values = sum(len(record.imported) for record in records)
    line = (
        f"written: {len(paths)} record(s) with {values} values to {output}; store them: "
        f"roofwatch ingest {output}"
    )
    result = {"records": [str(path) for path in paths], "notes": notes}
    print_result(result, line, as_json=as_json)


def _in_order(record: "RunRecord") -> tuple[int, datetime]:
    return record.commit.first_parent_count, record.started_at


def _print_notes(file: Path, notes: Iterable[str]) -> None:
    for note in notes:
        print_error(f"{file}: {note}")


def _compiled_commits(
    suite: Path | None,
    repository: Path,
    on_progress: "OnProgress",
) -> "CompiledCommits | None":
    """Prepare to compile the kernels at each commit; None without a suite or a compiler."""
    try:
        from roofwatch.importers.machine_code import CompiledCommits, find_suite
    except ImportError as error:
        # only a suite that was named must be compiled
        if suite is not None:
            raise
        print_error(
            f"machine code is unknown: {error.name} is missing; pip install roofwatch[measure]"
        )
        return None
    from roofwatch.collector.runs.run_plan import Progress, RunPlan

    benchmarks = suite or find_suite(repository)
    if benchmarks is None:
        return None

    def show(text: str) -> None:
        on_progress(Progress(0, 0, text))

    return CompiledCommits(benchmarks, RunPlan(device="cpu", usual_tag="quick"), on_commit=show)


def _read_files(
    paths: list[Path],
    git_history: str | None,
    repository: Path | None,
    *,
    format_name: str | None,
    columns: list[str],
    configured_presets: Mapping[str, Mapping[str, str | tuple[str, ...]]],
) -> "list[tuple[Path, str, ImportedRun]]":
    """Read all files before anything is written; with each, the name of its format."""
    from roofwatch.importers.git_history import versions_of
    from roofwatch.importers.reading import files_within, import_file
    from roofwatch.importers.table_map import TableMap

    table = TableMap.parse(columns) if columns else None
    presets = {
        name: TableMap.of(preset, name=f"import.presets.{name}")
        for name, preset in configured_presets.items()
    }
    with ExitStack() as closing:
        # the history of a branch is unpacked into a temporary folder
        if git_history is not None:
            versions = closing.enter_context(versions_of(repository or Path.cwd(), git_history))
            paths = [*paths, *versions]
        is_table = table is not None or format_name in presets
        readable = paths if is_table else list(files_within(paths))
        # an empty import would look like a success
        if not readable:
            raise typer.BadParameter("name files, or --git-history BRANCH:PATH")
        return [
            (file, *import_file(file, format_name, table=table, presets=presets))
            for file in readable
        ]


@app.command()
def export(
    files: Annotated[list[Path], typer.Argument(help="Record files, or folders of them.")],
    *,
    output: Output = None,
) -> None:
    """Write records as JSON for PyTorch's benchmark database (version 3)."""
    from roofwatch.importers.pytorch_database import to_pytorch
    from roofwatch.reporting.records import read_record_files

    entries = to_pytorch(record for _, record in read_record_files(files))
    print_or_write(json.dumps(entries, indent=2) + "\n", output)
