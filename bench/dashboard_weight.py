"""Count requests, bytes and browser time of the first visit to each screen, and of the next.

    PYTHONPATH=. python bench/dashboard_weight.py FOLDER [PROJECT]

FOLDER is a store, such as bench/made_up_history.py or bench/store_scale.py --folder writes. Goals:
the ledger under 1.5 MB and 30 requests, each screen under 1.5 s of the browser's main thread at
first and 0.5 s then. Times are valid on an idle machine only.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext

from roofwatch.dashboard.navigation import VIEWS, path_of
from tests.dashboard.browsing import launched, new_context
from tests.dashboard.served import serving

_SETTLED_MS = 1_500
_NOT_RUNNING = "[data-testid=stApp][data-test-script-state=notRunning]"


@dataclass
class ScreenWeight:
    """What one visit cost."""

    bytes_by_request: dict[str, float] = field(default_factory=dict)
    main_thread_s: float = 0.0

    @property
    def total_bytes(self) -> float:
        return sum(self.bytes_by_request.values())


def visit(context: BrowserContext, address: str) -> ScreenWeight:
    """Open an address in a new page, and wait until it is drawn."""
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    session.send("Performance.enable")
    weight = ScreenWeight()

    def on_finished(event: dict[str, Any]) -> None:
        weight.bytes_by_request[event["requestId"]] = event["encodedDataLength"]

    session.on("Network.loadingFinished", on_finished)
    page.goto(address)
    page.wait_for_selector("h1", state="attached")
    page.wait_for_selector(_NOT_RUNNING)
    page.wait_for_timeout(_SETTLED_MS)
    metrics = session.send("Performance.getMetrics")["metrics"]
    weight.main_thread_s = next(
        metric["value"] for metric in metrics if metric["name"] == "TaskDuration"
    )
    page.close()
    return weight


def main(store: Path, project: str | None) -> None:
    query = "" if project is None else f"?project={project}"
    with serving(data_dir=store.absolute()) as served, launched() as browser:
        for view in VIEWS:
            with new_context(browser) as context:
                address = f"{served.address}/{path_of(view).removeprefix('./')}{query}"
                first, again = visit(context, address), visit(context, address)
            print(
                f"{view}: {len(first.bytes_by_request)} requests, "
                f"{first.total_bytes / 1e6:.2f} MB, {first.main_thread_s:.2f} s; then "
                f"{again.total_bytes / 1e6:.2f} MB, {again.main_thread_s:.2f} s"
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
