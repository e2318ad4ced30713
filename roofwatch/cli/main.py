"""The `roofwatch` command: one module per group of commands, and one place for unexpected errors.

Exit status: 0 fine, 1 regression or failure, 2 could not decide or could not run.

Commands import what they need, so `roofwatch --help` loads no torch, database or browser.
"""

import errno
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from roofwatch import __version__
from roofwatch.cli import mcp
from roofwatch.commands import (
    alert,
    bisect,
    db,
    imports,
    measure,
    pair,
    post,
    profile,
    publish,
    queue,
    records,
    serve,
    show,
    static,
    token,
    triage,
    tune,
    watch,
)
from roofwatch.console.terminal import (
    OutputError,
    fail,
    is_debugging,
    is_expected,
    silence,
    stop_on_sigterm,
)

_PANELS = {
    "Start here": ("init", "check", "run", "ab", "static", "diagnose"),
    "Measure": ("list", "calibrate", "tune", "submit", "submissions", "demo"),
    "Compare and report": (
        "compare",
        "report",
        "upgrade-report",
        "post",
        "command",
        "action",
    ),
    "Explain": ("profile", "diff", "ncu", "read"),
    "Keep a history": (
        "watch",
        "bisect",
        "ingest",
        "import",
        "show",
        "triage",
        "alert",
        "artefact",
    ),
    "Exchange": ("push", "fetch", "export", "redact", "schema"),
    "Serve": (
        "publish",
        "api",
        "worker",
        "dashboard",
        "mcp",
        "queue",
        "runner",
        "db",
        "token",
    ),
}
"""Commands by what one wants to do, in the order of `roofwatch --help`."""


class _PanelGroup(TyperGroup):
    """Lists the commands panel by panel."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        unordered = dict(self.commands)
        self.commands = {}
        for panel, names in _PANELS.items():
            for name in names:
                command = unordered.pop(name)
                command.rich_help_panel = panel  # type: ignore[attr-defined]  # typer's own
                self.commands[name] = command
        self.commands |= unordered

    def invoke(self, ctx: Any) -> Any:
        """Run a command; the error of a missing argument says what it is."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            # the error of a missing parameter has no message of its own
            if not error.message:
                error.message = getattr(error.param, "help", "")
            raise


app = typer.Typer(
    name="roofwatch",
    cls=_PanelGroup,
    help="Find the commit that made a GPU kernel slower, by how much, how far it is from the "
    "hardware limit, and why.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for group in (
    measure,
    pair,
    bisect,
    watch,
    profile,
    static,
    tune,
    records,
    imports,
    show,
    triage,
    post,
    publish,
    queue,
    alert,
    serve,
    mcp,
    db,
    token,
):
    app.add_typer(group.app)

_EXTRAS = dict.fromkeys(("numpy", "torch", "triton", "pynvml"), "measure") | {
    "cuda": "cuda",
    "ray": "ray",
    "mcp": "mcp",
    "httpx": "github",
    "gitlab": "gitlab",
}
"""The extra that installs a module; all others come with `server`."""
_BROKEN_PIPE_STATUS = 141
"""128 + SIGPIPE, as shells report it; click would exit with 1, which here means a regression."""


def main() -> None:
    """Run the command line.

    An expected error prints one line on standard error and exits with 2.
    """
    debug = is_debugging()
    stop_on_sigterm()
    try:
        _run()
    except KeyboardInterrupt:
        fail("interrupted; results written so far are kept", exit_status=130)
    except Exception as error:
        if debug:
            raise
        fail(_describe(error), exit_status=getattr(error, "exit_status", 2))


def _run() -> None:
    """Run the command; raise OutputError if standard output cannot be written, for example to a
    full disk.
    """
    try:
        # a full disk shows only when the buffer is written
        try:
            app()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except SystemExit as leaving:
        # the reader ended, for example `head`
        if isinstance(leaving.__context__, BrokenPipeError):
            _leave_broken_pipe()
        raise
    except OSError as error:
        silence(1)
        if error.errno == errno.EPIPE:
            _leave_broken_pipe()
        if error.errno == errno.ENOSPC and error.filename is None:
            raise OutputError(f"standard output cannot be written: {error.strerror}") from None
        raise


def _leave_broken_pipe() -> None:
    silence(1)
    silence(2)  # may be the same pipe
    raise SystemExit(_BROKEN_PIPE_STATUS) from None


def _describe(error: Exception) -> str:
    if is_expected(error):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").split(".")[0]
        if package == "roofwatch":
            return f"{error.name} is missing: the installation is incomplete; repeat it"
        extra = _EXTRAS.get(package, "server")
        return f"this command needs {error.name}; install it with: pip install 'roofwatch[{extra}]'"
    return f"{type(error).__name__}: {error} (unexpected; run again with --debug for the traceback)"


def _show_version(is_requested: bool) -> None:
    if is_requested:
        print(f"roofwatch {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    del debug, version  # main() and the callback handle them
