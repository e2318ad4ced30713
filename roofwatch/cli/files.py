"""Commands for the files of other tools: import and export."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roofwatch.options import AsJson, Output
from roofwatch.terminal import make_table, print_or_write, print_result

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table

    from roofwatch.collector.record.metrics import Better
    from roofwatch.importers import ImportedRun

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
    from roofwatch.importers.records import import_file, mapping, to_records, turned

    directions = _directions(direction or [])
    found = [(file, *import_file(file, format_name)) for file in _files(files)]
    runs = [(file, name, turned(run, directions) if directions else run) for file, name, run in found]
    if dry_run:
        mapped = [mapping(name, run) for _, name, run in runs]
        tables = [_mapping_table(file, name, run) for file, name, run in runs]
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


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    """The files, and those of each folder that an importer knows."""
    from roofwatch.importers import FileImportError
    from roofwatch.importers.records import is_known

    for path in paths:
        if not path.is_dir():
            yield path
            continue
        inside = [file for file in sorted(path.rglob("*")) if file.is_file() and is_known(file)]
        if not inside:
            raise FileImportError(f"{path}: contains no file of a known format")
        yield from inside


def _directions(given: Sequence[str]) -> dict[str, Better]:
    from roofwatch.collector.record.metrics import Better
    from roofwatch.importers import FileImportError

    found = {}
    for one in given:
        name, _, better = one.rpartition("=")
        if not name or better not in ("lower", "higher"):
            raise FileImportError(f"--direction {one}: write metric=lower or metric=higher")
        found[name] = Better(better)
    return found


def _mapping_table(file: Path, format_name: str, run: ImportedRun) -> Table:
    """One row per number; samples of one kind share a row."""
    rows = []
    for _, group in groupby(
        run.rows, lambda row: (row.case, dict(row.parameters), row.metric, row.unit, row.statistic)
    ):
        first, *others = own = list(group)
        listed = " ".join(f"{key}={value}" for key, value in first.parameters.items())
        shown = f"{len(own)} values" if others else "" if first.value is None else f"{first.value:g}"
        outcomes = " ".join(dict.fromkeys(str(row.outcome) for row in own))
        rows.append((first.case, listed, first.metric, first.statistic, shown, first.unit, str(first.better), outcomes))
    commit = f"commit {run.commit.sha or 'not named'}{', dirty' if run.commit.is_dirty else ''}"
    title = f"{file}: {format_name} ({run.tool} {run.tool_version or 'of unknown version'}), {commit}"
    columns = ("case", "parameters", "metric", "statistic", "value", "unit", "better", "outcome")
    return make_table(columns, rows, title=title)
