"""The command that writes a static site of a project's history."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roofwatch.options import AsJson, ShownProject, StoreUrl
from roofwatch.terminal import print_result

if TYPE_CHECKING:
    from roofwatch.store.reading import Source

app = typer.Typer()


@app.command()
def publish(
    folder: Annotated[Path, typer.Argument(help="Folder of the site, such as public.")],
    *,
    records: Annotated[
        list[Path] | None,
        typer.Option("--from", help="Record files or folders of them, in place of the database."),
    ] = None,
    project: ShownProject = None,
    url: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Write a static site of a history, which needs no server: it also opens as a file.

    Repeat it after each run: the site keeps the runs that it has, and only files that changed are
    written.
    """
    from roofwatch.model.series_filter import SeriesFilter
    from roofwatch.publish.site import publish as write_site
    from roofwatch.store.reading import choose_project

    with _source(records, url) as source:
        name = choose_project(source, project)
        history = source.read_series(SeriesFilter(name))
        regressions = source.list_regressions(name)
    published = write_site(name, history, regressions, folder)
    print_result(
        published,
        f"{folder / 'index.html'}: {published.project}, {published.run_count} runs, "
        f"{published.series_count} series, {published.regression_count} regressions and "
        f"improvements",
        f"{published.written_files} files written, {published.written_bytes / 1e6:.1f} MB",
        as_json=as_json,
    )


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
    from roofwatch.records import read_record_files
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
