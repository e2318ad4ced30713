"""Commands of the service: the dashboard and the demo."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roofwatch.options import StoreUrl

if TYPE_CHECKING:  # `roofwatch --help` loads no database
    from roofwatch.store.server import Server

# Everything else is imported by the command that needs it: `roofwatch --help` loads no torch, database or browser.
app = typer.Typer()


@app.command()
def dashboard(
    port: Annotated[int | None, typer.Option(help="Port; a free one if left out.", min=0, max=65_535)] = None,
    address: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    *,
    url: StoreUrl = None,
) -> None:
    """Serve the dashboard until Ctrl-C, from the database, or through a server."""
    from roofwatch.arguments import configured_url, open_configured_store
    from roofwatch.dashboard.serve import serve
    from roofwatch.settings import load_settings
    from roofwatch.store.server import server_to_read
    from roofwatch.terminal import print_note

    def say(served: str) -> None:
        print_note(f"dashboard: {served}   (Ctrl-C ends it)")

    server = server_to_read(url)
    if server is not None:
        _check_can_be_read(server)
        serve(port=port, address=address, data_dir=None, database_url=None, server_url=server.line.url, on_ready=say)
        return
    with open_configured_store():  # a database that cannot be used is said here, not in a browser
        serve(
            port=port,
            address=address,
            data_dir=load_settings().data_dir,
            database_url=configured_url(),
            on_ready=say,
        )


def _check_can_be_read(server: Server) -> None:
    """Else this is said here, not in a browser; SpoolError says it."""
    from roofwatch.db.queries.questions import read_facets
    from roofwatch.store.server_source import ServerSource

    ServerSource(server).ask(read_facets)


@app.command()
def demo(
    folder: Annotated[Path, typer.Option("--dir", help="Everything the demo makes lies in here.")] = Path(
        "roofwatch-demo"
    ),
    serve: Annotated[bool, typer.Option(help="Serve the dashboard at the end.")] = True,
    port: Annotated[
        int | None, typer.Option(help="Port of the dashboard; a free one if left out.", min=0, max=65_535)
    ] = None,
) -> None:
    """Measure sixteen commits of a small repository for real, and find those that changed something."""
    from roofwatch.demo.run import run_demo

    raise typer.Exit(run_demo(folder, serve=serve, port=port))
