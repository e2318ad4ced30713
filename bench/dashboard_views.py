"""How long a reader waits for each view of the dashboard, in Chromium, over a store of any size.

    python bench/dashboard_views.py [MILLIONS] [--folder FOLDER] [--sessions N] [--json]

An embedded database is filled with made-up measurements (`made_up_store.py`), samples of the newest runs and
regressions (`made_up_evidence.py`), and the dashboard serves it. Two waits are told of each page: until the main
figure is drawn, which the view names (`MAIN_FIGURE` in `dashboard/frame.py`), and until the server has finished and
every figure is. *Cold* is a project that nobody has asked about before, *warm* the same address again, *moved to* the
same view once more, from another one by a link: from the click on. Beside them stands a page of Streamlit with one
line and nothing else, served alike and opened afresh as often as a view (`streamlit_alone.py`). At the end so many
sessions are open at once, and the server's memory is told. With `--folder` the database stays there for the next time.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

import numpy as np
import orjson
import psutil
from playwright.sync_api import Browser, Page, sync_playwright
from rich.console import Console
from rich.table import Table
from sqlalchemy import Engine, text

from bench.made_up_evidence import fill_evidence
from bench.made_up_store import DEEP, WIDE, Shape, fill, settle
from bench.streamlit_alone import VIEW
from roofwatch.dashboard.frame import MAIN_FIGURE
from roofwatch.dashboard.navigation import VIEWS
from roofwatch.dashboard.view_links import view_link_html
from roofwatch.db.engine.session import open_store

LONG = Shape("long", run_count=50_000, series_count=4)
"""One series of it is what a trend has to stay fluid with."""
_TARGET_COLD_S, _TARGET_WARM_S = 2.0, 1.0
_WAIT_MS = 120_000
_IS_DRAWN = """({mainKey, title}) => {
    const one = selector => document.querySelector(selector);
    const isSeen = each => each && !globalThis.left?.has(each) && each.getBoundingClientRect().height > 0;
    if (one("h1")?.innerText !== title) return false;
    const main = one(`[class*=st-key-${mainKey}]`);
    const drawn = main ? main.querySelectorAll(".main-svg .trace, table") : [];
    if ([...drawn].some(isSeen)) globalThis.mainDrawnMs ??= performance.now();
    const figures = [...document.querySelectorAll("[data-testid=stPlotlyChart]")];
    return one("[data-testid=stApp][data-test-script-state=notRunning] h1") && !one("[data-testid=stSkeleton]")
        && figures.every(figure => isSeen(figure.querySelector(".main-svg"))) && globalThis.mainDrawnMs
        && [globalThis.mainDrawnMs, performance.now()];
}"""
"""When the main figure was drawn, and when everything was: the server has finished, nothing is waited for, and every
figure is drawn; in ms since the page was asked for. Asked at every frame, as Playwright's own waiting looks every half
second only. What another view had drawn, and left behind, does not count."""
_LEAVE = """(main, link) => {
    globalThis.left = new WeakSet(main.querySelectorAll("*"));
    globalThis.mainDrawnMs = undefined;
    main.insertAdjacentHTML("beforeend", link);
    const begunMs = performance.now();
    main.lastElementChild.click();
    main.lastElementChild.remove();
    return begunMs;
}"""
"""When a link was clicked on, in ms since the page was asked for."""
_SERVER = (
    "import sys; from roofwatch.dashboard.serve import serve\n"
    "sys.exit(serve(port=None, database_url=sys.argv[1], data_dir=None,"
    " on_ready=lambda address: print(address, flush=True)))"
)
_ALONE = (
    "import sys; from pathlib import Path; from roofwatch.dashboard.server_process import run\n"
    "run('127.0.0.1', int(sys.argv[1]), Path(sys.argv[2]))"
)
_ALONE_SCRIPT = Path(__file__).with_name("streamlit_alone.py")
_POLL_S = 0.2


@dataclass(frozen=True)
class Wait:
    """Of one reader, from asking for the page, or from the click on a link."""

    main_s: float
    all_s: float


@dataclass(frozen=True)
class Percentiles:
    p50_s: float
    p95_s: float


@dataclass(frozen=True)
class Waits:
    view: str
    count: int
    main_cold: Percentiles
    main_warm: Percentiles
    main_moved_to: Percentiles
    all_cold: Percentiles
    all_warm: Percentiles
    all_moved_to: Percentiles


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("millions", type=int, nargs="?", default=10)
    parser.add_argument("--folder", type=Path, help="Where the database stays for the next time.")
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, open_store(folder=arguments.folder or Path(temporary)) as engine:
        _fill(engine, arguments.millions)
        url = engine.url.render_as_string(hide_password=False)
        with sync_playwright() as playwright, _served(url) as (address, server):
            idle_bytes = _memory_of(server)
            browser = playwright.chromium.launch(executable_path=_chromium(), args=["--no-sandbox"])
            alone = _wait_for_streamlit_alone(browser, arguments.millions)
            waits = [_waits(browser, address, view, arguments.millions) for view in _ADDRESSES]
            waits.append(_waits(browser, address, "trends of 50,000 runs", 1))
            memory_bytes = _memory_of_sessions(browser, address, server, arguments.sessions)
    if arguments.json:
        memory = {"idle_bytes": idle_bytes, "memory_bytes": memory_bytes}
        beside = {"streamlit_alone": asdict(alone), "sessions": arguments.sessions, **memory}
        found = {"waits": [asdict(one) for one in waits], **beside}
        print(orjson.dumps(found, option=orjson.OPT_INDENT_2).decode())
    else:
        _show(waits, alone, arguments.sessions, memory_bytes, idle_bytes)


def _chromium() -> str:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        raise SystemExit("no Chromium on this machine; install it (Debian: apt install chromium)")
    return found


def _fill(engine: Engine, millions: int) -> None:
    with engine.connect() as connection:
        there = set(connection.execute(text("SELECT name FROM project")).scalars())
    for pair in range(millions):
        for shape in (DEEP, WIDE):
            if shape.project(pair) not in there:
                fill(engine, shape, pair)
    settle(engine)
    for pair in range(millions):
        fill_evidence(engine, WIDE, pair)
    if LONG.project(0) not in there:
        fill(engine, LONG, 0)
    settle(engine)


_ADDRESSES = {
    "overview": lambda pair: f"/?project={WIDE.project(pair)}",
    "regression": lambda pair: f"/regression?project={WIDE.project(pair)}",
    "trends": lambda pair: (
        f"/trends?project={DEEP.project(pair)}&kernel=kernel_0&case={quote(DEEP.case_id(0), safe='')}"
    ),
    "compare": lambda pair: f"/compare?project={WIDE.project(pair)}",
    "kernel": lambda pair: f"/kernel?project={WIDE.project(pair)}",
    "run": lambda pair: f"/run?project={WIDE.project(pair)}",
    "runners": lambda pair: f"/runners?project={DEEP.project(pair)}",
    # how long a run took is not made up, but what was timed in it is
    "fleet": lambda pair: f"/fleet?project={DEEP.project(pair)}&show=family",
}


_FROM, _FROM_ELSE = "compare", "runners"
"""What a reader comes from by a link; Compare draws no figure, so that none is there already."""


def _address_of(view: str, pair: int) -> str:
    if view in _ADDRESSES:
        return _ADDRESSES[view](pair)
    return f"/trends?project={LONG.project(0)}&case={quote(LONG.case_id(0), safe='')}"


def _waits(browser: Browser, address: str, view: str, pair_count: int) -> Waits:
    cold, warm, moved_to = list[Wait](), list[Wait](), list[Wait]()
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(_WAIT_MS)
    # Streamlit's scripts are in the browser's cache, the modules of the view in the server's
    _open(page, f"{address}/?project={DEEP.project(0)}")
    another = _FROM if view != _FROM else _FROM_ELSE
    for pair in range(pair_count):
        cold.append(_open(page, address + _address_of(view, pair)))
        warm.append(_open(page, address + _address_of(view, pair)))
        _move(page, address + _address_of(another, pair))
        moved_to.append(_move(page, address + _address_of(view, pair)))
    context.close()
    kinds = (cold, warm, moved_to)
    by_figure = [[one.main_s for one in waits] for waits in kinds]
    by_page = [[one.all_s for one in waits] for waits in kinds]
    return Waits(view, pair_count, *(_percentiles(waits_s) for waits_s in (*by_figure, *by_page)))


def _wait_for_streamlit_alone(browser: Browser, count: int) -> Percentiles:
    """For its one figure, as warm as a view that is opened again."""
    with _served_alone() as address, browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        page = context.new_page()
        page.set_default_timeout(_WAIT_MS)
        # as often before as a view is opened cold
        waits = [_open(page, f"{address}/{VIEW}") for _ in range(2 * count)][count:]
    return _percentiles([one.main_s for one in waits])


def _percentiles(waits_s: Sequence[float]) -> Percentiles:
    return Percentiles(*(float(np.percentile(waits_s, at)) for at in (50, 95)))


def _open(page: Page, address: str) -> Wait:
    page.goto(address, wait_until="commit")
    return _wait(page, address, begun_ms=0.0)


def _move(page: Page, address: str) -> Wait:
    """From the view that is shown, by a link as they stand in tables."""
    begun_ms = page.get_by_test_id("stMain").evaluate(_LEAVE, view_link_html(address, "there"))
    return _wait(page, address, begun_ms=begun_ms)


def _wait(page: Page, address: str, *, begun_ms: float) -> Wait:
    view = urlsplit(address).path.strip("/") or next(iter(VIEWS))
    asked = {"mainKey": MAIN_FIGURE, "title": VIEWS[view].title}
    main_ms, all_ms = page.wait_for_function(_IS_DRAWN, arg=asked, polling="raf").json_value()
    return Wait((main_ms - begun_ms) / 1e3, (all_ms - begun_ms) / 1e3)


def _memory_of_sessions(browser: Browser, address: str, server: psutil.Process, count: int) -> int:
    contexts = []
    for number in range(count):
        contexts.append(browser.new_context(viewport={"width": 1280, "height": 900}))
        page = contexts[-1].new_page()
        page.set_default_timeout(_WAIT_MS)
        views = list(_ADDRESSES)
        _open(page, address + _address_of(views[number % len(views)], 0))
    used_bytes = _memory_of(server)
    for context in contexts:
        context.close()
    return used_bytes


def _memory_of(server: psutil.Process) -> int:
    return sum(process.memory_info().rss for process in [server, *server.children(recursive=True)])


@contextmanager
def _served(url: str) -> Iterator[tuple[str, psutil.Process]]:
    command = [sys.executable, "-c", _SERVER, url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip(), psutil.Process(process.pid)
        finally:
            process.terminate()


@contextmanager
def _served_alone() -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with subprocess.Popen([sys.executable, "-c", _ALONE, str(port), str(_ALONE_SCRIPT)]) as process:
        try:
            address = f"http://127.0.0.1:{port}"
            while not _is_healthy(address):
                if process.poll() is not None:
                    raise SystemExit(f"the page of Streamlit alone ended with status {process.returncode}")
                time.sleep(_POLL_S)
            yield address
        finally:
            process.terminate()


def _is_healthy(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/_stcore/health", timeout=5):  # noqa: S310 (our own http address)
            return True
    except (urllib.error.URLError, OSError):
        return False


def _show(waits: list[Waits], alone: Percentiles, session_count: int, memory_bytes: int, idle_bytes: int) -> None:
    kinds = [f"{what} {how}" for what in ("main", "all") for how in ("cold", "warm", "moved to")]
    table = Table("view", "addresses", *(f"{kind} {at}" for kind in kinds for at in ("p50", "p95")), "target")
    for one in waits:
        is_met = one.main_cold.p95_s < _TARGET_COLD_S and one.main_warm.p95_s < _TARGET_WARM_S
        told = (one.main_cold, one.main_warm, one.main_moved_to, one.all_cold, one.all_warm, one.all_moved_to)
        times = (f"{wait_s:.2f} s" for kind in told for wait_s in (kind.p50_s, kind.p95_s))
        table.add_row(one.view, str(one.count), *times, "met" if is_met else "missed")
    # in a file or a pipe there is no width to keep to
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table)
    console.print(f"Streamlit alone with one line, warm: p50 {alone.p50_s:.2f} s, p95 {alone.p95_s:.2f} s")
    console.print(f"targets of the main figure at p95: cold {_TARGET_COLD_S} s, warm {_TARGET_WARM_S} s")
    held = f"{memory_bytes / 2**20:.0f} MiB, and {idle_bytes / 2**20:.0f} MiB before anybody came"
    console.print(f"{session_count} sessions open: the server holds {held}")


if __name__ == "__main__":
    main()
