"""Commands for the files of other tools: import and export."""

import json
from pathlib import Path
from typing import Annotated

import typer

from roofwatch.options import AsJson, Output
from roofwatch.terminal import print_or_write, print_result

app = typer.Typer()


@app.command("import")
def import_(
    files: Annotated[list[Path], typer.Argument(help="Result files of other tools, or folders of them.")],
    *,
    format_name: Annotated[str | None, typer.Option("--as", help="Format. Default: recognised.")] = None,
    project: Annotated[str | None, typer.Option(help="Project. Default: the file's, or this repository's.")] = None,
    commit: Annotated[str | None, typer.Option(help="Measured commit. Default: the one that the file names.")] = None,
    direction: Annotated[
        list[str] | None, typer.Option(help="Which values of a metric are better: metric=lower or metric=higher.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what each number becomes; write nothing.")] = False,
    store: Annotated[bool, typer.Option("--ingest", help="Store the records too, and judge the history.")] = False,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the records.")] = Path("roofwatch-records"),
    as_json: AsJson = False,
) -> None:
    """Turn results of pytest-benchmark, Google Benchmark, asv, nvbench, TritonBench, vLLM and others into records.

    Nothing is written if a file is damaged.
    """
    from roofwatch.cli.records import ingest
    from roofwatch.importers.records import import_file, known_files, mapping, mapping_table, to_records, turned

    found = [(file, *import_file(file, format_name)) for file in known_files(files)]
    runs = [(file, name, turned(run, direction) if direction else run) for file, name, run in found]
    if dry_run:
        mapped = [mapping(name, run) for _, name, run in runs]
        tables = [mapping_table(file, name, run) for file, name, run in runs]
        print_result(mapped[0] if len(mapped) == 1 else mapped, *tables, as_json=as_json)
        return
    written = []
    for file, _, run in runs:
        written += list(to_records(run, file, project=project, revision=commit, folder=Path.cwd()))
    paths = [output / f"{record.commit.sha[:12]}-{record.run_id}.json.gz" for record in written]
    for record, path in zip(written, paths, strict=True):
        record.write(path)
    if store:
        ingest(paths, as_json=as_json)
        return
    values = sum(len(record.imported) for record in written)
    line = f"written: {len(paths)} record(s) with {values} values to {output}; store them: roofwatch ingest {output}"
    print_result({"records": [str(path) for path in paths]}, line, as_json=as_json)


@app.command()
def export(
    files: Annotated[list[Path], typer.Argument(help="Record files, or folders of them.")], *, output: Output = None
) -> None:
    """Write records as JSON for PyTorch's benchmark database (version 3)."""
    from roofwatch.importers.kernels import to_pytorch
    from roofwatch.records import read_record_files

    entries = to_pytorch(record for _, record in read_record_files(files))
    print_or_write(json.dumps(entries, indent=2) + "\n", output)
