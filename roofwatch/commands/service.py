"""Commands of the service: the dashboard, the database, the demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from roofwatch.options import AsJson

# Everything else is imported by the command that needs it: `roofwatch --help` loads no torch, database or browser.
app = typer.Typer()
db_app = typer.Typer(help="The database: bring its schema up to date, show its state.", no_args_is_help=True)
app.add_typer(db_app, name="db")


@app.command()
def dashboard(
    port: Annotated[int | None, typer.Option(help="Port; a free one if left out.")] = None,
    address: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
) -> None:
    """Serve the dashboard until Ctrl-C."""
    from dashboard.serve import serve
    from roofwatch.arguments import configured_url, open_configured_store
    from roofwatch.settings import load_settings
    from roofwatch.terminal import print_note

    with open_configured_store():  # a database that cannot be used is said here, not in a browser
        serve(
            port=port,
            address=address,
            data_dir=load_settings().data_dir,
            database_url=configured_url(),
            on_ready=lambda served: print_note(f"dashboard: {served}   (Ctrl-C ends it)"),
        )


@app.command()
def demo(
    folder: Annotated[Path, typer.Option("--dir", help="Everything the demo makes lies in here.")] = Path(
        "roofwatch-demo"
    ),
    serve: Annotated[bool, typer.Option(help="Serve the dashboard at the end.")] = True,
    port: Annotated[int | None, typer.Option(help="Port of the dashboard; a free one if left out.")] = None,
) -> None:
    """Measure sixteen commits of a small repository for real, and find those that changed something."""
    from roofwatch.demo.run import run_demo

    raise typer.Exit(run_demo(folder, serve=serve, port=port))


@db_app.command("upgrade")
def db_upgrade() -> None:
    """Bring the schema of the database up to date."""
    from db.migrate import head_revision, upgrade
    from db.session import open_server
    from roofwatch.arguments import configured_url, open_configured_store
    from roofwatch.terminal import print_note

    # the embedded database is brought up to date whenever it is opened
    url = configured_url()
    with open_configured_store() if url is None else open_server(url) as engine:
        upgrade(engine)
    print_note(f"the schema is at revision {head_revision()}")


@db_app.command("status")
def db_status(*, as_json: AsJson = False) -> None:
    """Show where the database is, its schema, and what it holds."""
    from db.status import read_status
    from roofwatch import tables
    from roofwatch.arguments import open_configured_store
    from roofwatch.terminal import print_json, print_table

    with open_configured_store() as engine:
        status = read_status(engine)
    if as_json:
        print_json(status)
    else:
        print_table(tables.status(status))
