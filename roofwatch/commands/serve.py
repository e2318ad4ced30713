"""Commands that serve the HTTP API, the dashboard and AI agents, and the demo."""

from pathlib import Path
from typing import Annotated

import typer

from roofwatch.commands.options import StoreUrl
from roofwatch.console.terminal import print_note

app = typer.Typer()

_DashboardPort = Annotated[
    int | None, typer.Option(help="Port. Default: a free one.", min=0, max=65_535)
]
LogJson = Annotated[bool, typer.Option("--log-json", help="Log lines of JSON.")]


@app.command()
def api(
    *,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 for a free one.", min=0, max=65_535)] = 8700,
    certificate: Annotated[
        Path | None, typer.Option(help="TLS certificate with its chain (PEM). Default: plain HTTP.")
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(help="Private key of the certificate (PEM). Default: in the same file."),
    ] = None,
    series_metrics: Annotated[
        bool,
        typer.Option(
            "--series-metrics",
            help="Serve the newest values as OpenMetrics, at /v1/series/metrics.",
        ),
    ] = False,
    log_json: LogJson = False,
    workers: Annotated[
        int, typer.Option(help="Processes that analyse; 0 if they run elsewhere.", min=0, max=64)
    ] = 1,
) -> None:
    """Serve the HTTP API until Ctrl-C, with --series-metrics also for Prometheus.

    All routes but /healthz and /readyz need a token. Beyond this machine, use TLS: --certificate or
    a proxy.
    """
    from roofwatch import __version__
    from roofwatch.api.app import create_app, serve
    from roofwatch.api.limits import Limits
    from roofwatch.api.logs import log_to_stderr
    from roofwatch.api.worker_processes import worker_processes
    from roofwatch.configuration.arguments import open_configured_store
    from roofwatch.configuration.settings import load_settings
    from roofwatch.regressions.alerting import read_alerts

    settings = load_settings()
    limits = Limits()
    log_to_stderr(as_json=log_json)
    if settings.alert_rules is None:
        alerts = None
    else:
        alerts = read_alerts(None, settings)
    with open_configured_store() as engine:
        served = create_app(
            engine,
            version=__version__,
            limits=limits,
            audience=settings.oidc_audience,
            issuer=settings.oidc_issuer,
            alerts=alerts,
            exports_series=series_metrics,
        )
        with worker_processes(workers):
            serve(
                served,
                host=host,
                port=port,
                limits=limits,
                certificate=certificate,
                key=key,
                on_ready=lambda url: print_note(f"API: {url}   (stop with Ctrl-C)"),
            )


@app.command()
def worker(
    *,
    log_json: LogJson = False,
    parent: Annotated[
        int | None, typer.Option(help="Stop when this parent process ends.", hidden=True)
    ] = None,
) -> None:
    """Analyse projects with new records until Ctrl-C, beside `roofwatch api --workers 0`.

    Several workers share the queue in the database, one project each.
    """
    import signal
    import threading

    from roofwatch.api.logs import log_to_stderr
    from roofwatch.api.worker import parent_watcher, work
    from roofwatch.configuration.arguments import open_configured_store

    log_to_stderr(as_json=log_json)
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    with open_configured_store() as engine:
        work(engine, parent_watcher(parent, stopping))


@app.command()
def dashboard(
    port: _DashboardPort = None,
    address: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    *,
    url: StoreUrl = None,
) -> None:
    """Serve the dashboard until Ctrl-C, from the database or through a server."""
    from roofwatch.configuration.arguments import open_configured_store
    from roofwatch.dashboard.serve import serve
    from roofwatch.store.server import server_to_read

    def show(served: str) -> None:
        print_note(f"dashboard: {served}   (stop with Ctrl-C)")

    # A source that cannot be read is reported here, not in a browser.
    server = server_to_read(url)
    if server is not None:
        server.list_projects()
        serve(
            port=port,
            address=address,
            server_url=server.url,
            on_ready=show,
        )
        return
    with open_configured_store():
        serve(port=port, address=address, on_ready=show)


@app.command()
def demo(
    folder: Annotated[
        Path, typer.Option("--dir", help="Folder for everything the demo makes.")
    ] = Path("roofwatch-demo"),
    serve: Annotated[bool, typer.Option(help="Serve the dashboard at the end.")] = True,
    port: _DashboardPort = None,
) -> None:
    """Measure sixteen commits of a small repository and find the four that changed something."""
    from roofwatch.demo.run import run_demo

    raise typer.Exit(run_demo(folder, serve=serve, port=port))
