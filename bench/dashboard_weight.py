"""Count requests, bytes and processor time of the first visit to each screen, and of the next.

    PYTHONPATH=. python bench/dashboard_weight.py FOLDER [PROJECT...]

FOLDER is a store; one that does not exist yet is filled with a million measurements and the made-up
history of three GPUs, which are the projects that are visited by default. Goals: the ledger under
1.5 MB and 30 requests, each screen under 1.5 s of the browser's main thread at first, then 0.5 s.
The first line is of an empty page of Streamlit, whose requests every screen makes too. Other work
on the machine hardly changes processor times; it does change the time until a screen is shown.
"""

import contextlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import BrowserContext
from sqlalchemy import text

from roofwatch.dashboard.navigation import VIEWS, path_of
from roofwatch.db.engine.session import open_store
from tests.dashboard import made_up_history
from tests.dashboard.browsing import launched, new_context
from tests.dashboard.served import Served, serving
from tests.db import made_up_store
from tests.db.made_up_store import DEEP, WIDE

PROJECTS = (DEEP.project(0), WIDE.project(0), made_up_history.PROJECT)
_SETTLED_MS = 1_500
_KINDS = ("Script", "RecalcStyle", "Layout")
_END_TODAY = text(
    "UPDATE commit SET committed_at = committed_at + (SELECT now() - max(committed_at) FROM commit)"
)
_RUN_TODAY = text(
    "UPDATE run SET started_at = started_at + moved.age, finished_at = finished_at + moved.age "
    "FROM (SELECT now() - max(finished_at) AS age FROM run) moved"
)
_POLL_S = 0.1
_EMPTY_PAGE = "import streamlit\nstreamlit.html('<h1>Empty</h1>')\n"
_NOT_RUNNING = "[data-testid=stApp][data-test-script-state=notRunning]"


@dataclass
class ScreenWeight:
    """What one visit cost."""

    bytes_by_request: dict[str, float] = field(default_factory=dict)
    main_thread_s: Mapping[str, float] = field(default_factory=dict)
    """By kind of work; `Task` is all of it."""
    server_s: float = 0.0
    """Of the dashboard's process, without the database's."""
    shown_after_s: float = 0.0

    def __str__(self) -> str:
        """One line: requests, bytes and times of the browser and the server."""
        total_mb = sum(self.bytes_by_request.values()) / 1e6
        parts = ", ".join(f"{kind} {self.main_thread_s[kind]:.2f}" for kind in _KINDS)
        return (
            f"{len(self.bytes_by_request)} requests, {total_mb:.2f} MB, "
            f"browser {self.main_thread_s['Task']:.2f} s ({parts}), server {self.server_s:.2f} s, "
            f"shown after {self.shown_after_s:.2f} s"
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


def visit(context: BrowserContext, address: str, server: psutil.Process) -> ScreenWeight:
    """Open an address in a new page, and wait until it is drawn."""
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    weight = ScreenWeight()

    def on_finished(event: dict[str, Any]) -> None:
        weight.bytes_by_request[event["requestId"]] = event["encodedDataLength"]

    session.on("Network.loadingFinished", on_finished)
    server_s = _processor_s(server)
    started_s = time.perf_counter()
    page.goto(address)
    page.wait_for_selector("h1", state="attached")
    page.wait_for_selector(_NOT_RUNNING)
    weight.shown_after_s = time.perf_counter() - started_s
    page.wait_for_timeout(_SETTLED_MS)
    weight.server_s = _processor_s(server) - server_s
    metrics = session.send("Performance.getMetrics")["metrics"]
    weight.main_thread_s = {
        metric["name"].removesuffix("Duration"): metric["value"]
        for metric in metrics
        if metric["name"].endswith("Duration")
    }
    page.close()
    return weight


@contextlib.contextmanager
def serving_empty_page(folder: Path) -> Iterator[Served]:
    """Serve a Streamlit script that shows a heading, from a folder."""
    script = folder / "empty.py"
    script.write_text(_EMPTY_PAGE, encoding="utf-8")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", str(script), f"--server.port={port}"]
    options = ["--server.headless=true", "--browser.gatherUsageStats=false"]
    address = f"http://127.0.0.1:{port}"
    with subprocess.Popen(
        [*command, *options],
        stdout=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            _wait_for(f"{address}/_stcore/health")
            yield Served(address, process)
        finally:
            process.terminate()


def _wait_for(url: str) -> None:
    while True:
        # refused until the server listens
        with (
            contextlib.suppress(urllib.error.URLError),
            urllib.request.urlopen(url),  # noqa: S310 (our own http address)
        ):
            return
        time.sleep(_POLL_S)


def _processor_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def main(store: Path, projects: Sequence[str]) -> None:
    # filling takes minutes, so the store is kept for the next time
    if not store.exists():
        fill(store)
    with (
        tempfile.TemporaryDirectory() as folder,
        serving_empty_page(Path(folder)) as empty,
        launched() as browser,
        new_context(browser) as context,
    ):
        weight = visit(context, empty.address, psutil.Process(empty.process.pid))
        print(f"an empty page of Streamlit\n  first {weight}")
    with serving(data_dir=store.absolute()) as served, launched() as browser:
        server = psutil.Process(served.process.pid)
        for project, view in product(projects, VIEWS):
            path = path_of(view).removeprefix("./")
            address = f"{served.address}/{path}?project={project}"
            with new_context(browser) as context:
                # the second visit has the files of the first in its cache
                first = visit(context, address, server)
                again = visit(context, address, server)
            print(f"{project} {view}\n  first {first}\n  then {again}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or PROJECTS)
