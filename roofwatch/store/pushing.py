"""Where records are sent, and what became of them, in words."""

from __future__ import annotations

import os
from pathlib import Path

from roofwatch.collector.outbox.http_client import TOKEN_VARIABLE
from roofwatch.collector.outbox.spool import Delivery, Spool
from roofwatch.collector.outbox.upload import HttpSender
from roofwatch.options import EXIT_CANNOT, EXIT_WRONG
from roofwatch.settings import load_settings
from roofwatch.store.server import server_url


def sender_and_spool(url: str | None, folder: Path | None) -> tuple[HttpSender, Spool]:
    """What is not given comes from the settings, and the token from the environment alone.

    Raises:
        SpoolError: no server is named, or its URL cannot be used.
    """
    spool = Spool(folder or load_settings().data_dir / "spool")
    return HttpSender(server_url(url), os.environ.get(TOKEN_VARIABLE) or None), spool


def summary(delivery: Delivery, spool: Spool) -> list[str]:
    """A line for what was sent, and one for each record that was not."""
    if delivery == Delivery():
        return [f"nothing waits to be sent in {spool.folder}; name records or their folder to send them"]
    lines = [f"{len(delivery.sent)} record(s) sent and acknowledged"]
    lines += [f"refused: {spool.folder / 'refused' / name}: {reason}" for name, reason in delivery.refused]
    lines += [f"sent without an artefact: {name}: {reason}" for name, reason in delivery.incomplete]
    lines += [f"kept for later: {spool.folder / name}: {reason}" for name, reason in delivery.left]
    return lines


def exit_status(delivery: Delivery) -> int:
    if delivery.left:
        return EXIT_CANNOT
    return EXIT_WRONG if delivery.refused or delivery.incomplete else 0
