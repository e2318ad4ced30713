"""The command that serves all others to AI agents."""

from pathlib import Path
from typing import Annotated

import typer

from roofwatch.console.terminal import print_error

app = typer.Typer()


@app.command()
def mcp(
    repository: Annotated[
        Path,
        typer.Argument(
            help="Repository whose kernels agents may measure.",
            exists=True,
            file_okay=False,
        ),
    ] = Path(),
    *,
    http: Annotated[
        bool,
        typer.Option(
            "--http", help="Serve streamable HTTP with the token in ROOFWATCH_MCP_TOKEN, not stdio."
        ),
    ] = False,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Port.")] = 8720,
) -> None:
    """Serve the commands as tools of the Model Context Protocol, for AI agents.

    Tools run code of the repository. They write records and profiles there, and delete nothing.
    """
    from roofwatch.agents.server import serve

    if http:
        print_error(f"MCP: http://{host}:{port}/mcp   (stop with Ctrl-C)")
    serve(repository, http=(host, port) if http else None)
