"""The command that writes a static site of a project's history."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roofwatch.commands.options import AsJson, ShownProject, StoreUrl
from roofwatch.console.terminal import print_result

if TYPE_CHECKING:
    from roofwatch.publish.site import Published
    from roofwatch.store.reading import Source

app = typer.Typer()


@app.command()
def publish(
    folder: Annotated[
        Path, typer.Argument(help="Folder of the site, such as public; with --branch, on it.")
    ],
    *,
    records: Annotated[
        list[Path] | None,
        typer.Option("--from", help="Record files or folders of them, in place of the database."),
    ] = None,
    branch: Annotated[
        str | None,
        typer.Option(
            help="Keep records and site on this branch of origin, such as gh-pages, and push it."
        ),
    ] = None,
    project: ShownProject = None,
    url: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Write a static site of a history, which needs no server: it also opens as a file.

    Repeat it after each run: the site keeps the runs that it has, and only files that changed are
    written.
    """
    if branch is None:
        published = _publish(folder, records, project, url)
    else:
        published = _publish_on_branch(folder, branch, records or [], project)
    print_result(
        published,
        f"{folder / 'index.html'}: {published.project}, {published.run_count} runs, "
        f"{published.series_count} series, {published.regression_count} regressions and "
        f"improvements",
        f"{published.written_files} files written, {published.written_bytes / 1e6:.1f} MB",
        as_json=as_json,
    )


def _publish(
    folder: Path,
    records: list[Path] | None,
    project: str | None,
    url: str | None,
) -> "Published":
    from roofwatch.publish.site import publish_new_runs
    from roofwatch.store.reading import choose_project

    with _source(records, url) as source:
        return publish_new_runs(choose_project(source, project), source, folder)


def _publish_on_branch(
    folder: Path,
    branch: str,
    records: list[Path],
    project: str | None,
) -> "Published":
    """Add records to those of a branch, and publish all of them there."""
    from roofwatch.configuration.arguments import repository_of
    from roofwatch.model.errors import RecordError
    from roofwatch.publish.branch import RECORDS, add_records, kept_branch
    from roofwatch.reporting.records import read_record_files

    if folder.is_absolute() or ".." in folder.parts:
        raise RecordError(f"{folder}: with --branch, name a folder on the branch, such as .")
    # a damaged record stops the command before the branch is read
    files = [file for file, _ in read_record_files(records)]
    with kept_branch(repository_of(Path()), branch) as tree:
        site = tree / folder
        add_records(files, site / RECORDS)
        return _publish(site, [site / RECORDS], project, None)


@contextmanager
def _source(records: list[Path] | None, url: str | None) -> "Iterator[Source]":
    """Read the store, or analyse records in a database that is removed afterwards."""
    from roofwatch.store.reading import open_source

    if not records:
        with open_source(url) as source:
            yield source
        return
    import tempfile

    from roofwatch.ci.history.analyse import analyse_project
    from roofwatch.db.engine.session import open_store
    from roofwatch.db.ingest.ingest import ingest_record
    from roofwatch.reporting.records import read_record_files
    from roofwatch.store.database_source import DatabaseSource

    # read before a database is started: a damaged file is the likelier error
    record_files = read_record_files(records)
    with (
        tempfile.TemporaryDirectory(prefix="roofwatch-") as temporary,
        open_store(folder=Path(temporary)) as engine,
    ):
        projects = {ingest_record(engine, record).project for _, record in record_files}
        for name in projects:
            analyse_project(engine, name)
        yield DatabaseSource(engine)
