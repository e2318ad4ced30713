"""The command that serves the HTTP API."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

# Everything else is imported by the command that needs it: `roofwatch --help` loads no torch, database or browser.
app = typer.Typer()


@app.command()
def api(
    *,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 for a free one.", min=0, max=65_535)] = 8700,
    certificate: Annotated[
        Path | None,
        typer.Option(help="For TLS: the certificate with its chain, PEM. Left out: plain HTTP.", show_default=False),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(help="The certificate's key, PEM. Left out: it is in the same file.", show_default=False),
    ] = None,
) -> None:
    """Serve the HTTP API until Ctrl-C: records in, what was found in them out.

    Every route but /healthz and /readyz asks for a token (`roofwatch token create`). Behind a proxy or beyond this
    machine it needs TLS, by the proxy or with --certificate: clients send no token over an open line.
    """
    from roofwatch import __version__
    from roofwatch.alerting import configured_alerts
    from roofwatch.api.app import create_app
    from roofwatch.api.limits import Limits
    from roofwatch.api.serve import log_to_stderr, serve
    from roofwatch.arguments import open_configured_store
    from roofwatch.cycles import look_for_cycles_seldom
    from roofwatch.settings import load_settings
    from roofwatch.terminal import print_note

    settings, limits = load_settings(), Limits()
    log_to_stderr()
    look_for_cycles_seldom()
    alerts = configured_alerts(settings)
    with open_configured_store() as engine:
        served = create_app(
            engine,
            version=__version__,
            limits=limits,
            audience=settings.oidc_audience,
            issuer=settings.oidc_issuer,
            alerts=alerts,
        )
        serve(
            served,
            host=host,
            port=port,
            limits=limits,
            certificate=certificate,
            key=key,
            on_ready=lambda url: print_note(f"api: {url}   (Ctrl-C ends it)"),
        )
