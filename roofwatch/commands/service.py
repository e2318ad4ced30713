"""Commands of the service: the dashboard and the demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

# Everything else is imported by the command that needs it: `roofwatch --help` loads no torch, database or browser.
app = typer.Typer()


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
