"""The command line. Every command reads, calls one function of the package that owns the work, and prints.

Exit status: 0 fine, 1 a regression, 2 could not tell or could not do it.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from roofwatch import __version__
from roofwatch.cli import (
    alert,
    api,
    artefact,
    bisect,
    diagnose,
    machine_code,
    measure,
    ncu,
    pair,
    post,
    profile,
    records,
    service,
    show,
    store,
    token,
)

app = typer.Typer(
    name="roofwatch",
    help="Which commit made a GPU kernel slower, by how much, how far it is from the roof, and why.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for commands in (
    measure,
    pair,
    bisect,
    diagnose,
    ncu,
    profile,
    machine_code,
    records,
    show,
    artefact,
    post,
    alert,
    service,
    store,
    api,
    token,
):
    app.add_typer(commands.app)


_EXTRAS = {"torch": "measure", "triton": "measure", "pynvml": "measure", "cuda": "cuda", "ray": "ray"}
"""The extra that brings a module; all others come with `server`."""


def main() -> None:
    """Run the command line; an expected error is one line on standard error and exit status 2."""
    from roofwatch.streams import standard_streams
    from roofwatch.terminal import fail, stop_on_sigterm

    debug = "--debug" in sys.argv[1:]
    stop_on_sigterm()
    try:
        with standard_streams():
            app()
    except KeyboardInterrupt:
        fail("interrupted; what was measured and written before is kept", exit_status=130)
    except Exception as error:
        if debug:
            raise
        fail(_describe(error))


def _describe(error: Exception) -> str:
    from roofwatch.terminal import is_expected

    if is_expected(error):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        extra = _EXTRAS.get((error.name or "").split(".")[0], "server")
        return f"this command needs {error.name}; install it with: pip install 'roofwatch[{extra}]'"
    return f"{type(error).__name__}: {error} (unexpected: run again with --debug for the traceback)"


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"roofwatch {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del debug, version  # main() and the callback have seen to them
