"""Count requests, bytes and browser time of the first visit to each screen, and of the next.

    PYTHONPATH=. python bench/dashboard_weight.py FOLDER [PROJECT]

FOLDER is a store; one that does not exist yet is filled with a million measurements and the made-up
history of three GPUs. Goals: the ledger under 1.5 MB and 30 requests, each screen under 1.5 s of
the browser's main thread at first and 0.5 s then. Times are those that the thread had a processor,
so other work on the machine hardly changes them.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext
from sqlalchemy import text

from roofwatch.dashboard.navigation import VIEWS, path_of
from roofwatch.db.engine.session import open_store
from tests.dashboard import made_up_history
from tests.dashboard.browsing import launched, new_context
from tests.dashboard.served import serving
from tests.db import made_up_store
from tests.db.made_up_store import DEEP, WIDE

_SETTLED_MS = 1_500
_KINDS = ("Script", "RecalcStyle", "Layout")
_END_TODAY = text(
    "UPDATE commit SET committed_at = committed_at + (SELECT now() - max(committed_at) FROM commit)"
)
_RUN_TODAY = text(
    "UPDATE run SET started_at = started_at + moved.age, finished_at = finished_at + moved.age "
    "FROM (SELECT now() - max(finished_at) AS age FROM run) moved"
)
_NOT_RUNNING = "[data-testid=stApp][data-test-script-state=notRunning]"


@dataclass
class ScreenWeight:
    """What one visit cost."""

    bytes_by_request: dict[str, float] = field(default_factory=dict)
    main_thread_s: Mapping[str, float] = field(default_factory=dict)
    """By kind of work; `Task` is all of it."""

    def __str__(self) -> str:
        total_mb = sum(self.bytes_by_request.values()) / 1e6
        parts = ", ".join(f"{kind} {self.main_thread_s[kind]:.2f}" for kind in _KINDS)
        return (
            f"{len(self.bytes_by_request)} requests, {total_mb:.2f} MB, "
            f"{self.main_thread_s['Task']:.2f} s ({parts})"
        )


def fill(folder: Path) -> None:
    """Store a million measurements that end today, and the made-up history of three GPUs."""
    with open_store(folder=folder) as engine:
        for shape in (DEEP, WIDE):
            made_up_store.fill(engine, shape, 0)
        with engine.begin() as connection:
            connection.execute(_END_TODAY)
            connection.execute(_RUN_TODAY)
        made_up_history.store(engine, datetime.now(UTC))
        made_up_store.settle(engine)


def visit(context: BrowserContext, address: str) -> ScreenWeight:
    """Open an address in a new page, and wait until it is drawn."""
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    weight = ScreenWeight()

    def on_finished(event: dict[str, Any]) -> None:
        weight.bytes_by_request[event["requestId"]] = event["encodedDataLength"]

    session.on("Network.loadingFinished", on_finished)
    page.goto(address)
    page.wait_for_selector("h1", state="attached")
    page.wait_for_selector(_NOT_RUNNING)
    page.wait_for_timeout(_SETTLED_MS)
    metrics = session.send("Performance.getMetrics")["metrics"]
    weight.main_thread_s = {
        metric["name"].removesuffix("Duration"): metric["value"]
        for metric in metrics
        if metric["name"].endswith("Duration")
    }
    page.close()
    return weight


def main(store: Path, project: str | None) -> None:
    # filling takes minutes, so the store is kept for the next time
    if not store.exists():
        fill(store)
    query = "" if project is None else f"?project={project}"
    with serving(data_dir=store.absolute()) as served, launched() as browser:
        for view in VIEWS:
            with new_context(browser) as context:
                address = f"{served.address}/{path_of(view).removeprefix('./')}{query}"
                # the second visit has the files of the first in its cache
                first, again = visit(context, address), visit(context, address)
            print(f"{view}: first {first}; then {again}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
