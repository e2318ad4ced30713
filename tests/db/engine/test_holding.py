"""The advisory lock of an analysis."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine, text

from roofwatch.db.engine.session import ANALYSIS, analysis_lock, open_store
from tests.builders import PROJECT
from tests.databases import text_of
from tests.db.engine.pgbouncer import pooling

TIMEOUT_S = 60
HOLD = """
import sys
from roofwatch.db.engine.session import analysis_lock, open_store
with open_store(sys.argv[1]) as engine, analysis_lock(engine, sys.argv[2]):
    print("holds", flush=True)
    sys.stdin.read()
"""
HOLDERS = (
    "SELECT pid, backend_xmin, granted FROM pg_locks JOIN pg_stat_activity USING (pid) "
    f"WHERE locktype = 'advisory' AND classid = {ANALYSIS} AND objsubid = 2"
)


def wait_until(condition: Callable[[], Any]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def holders(engine: Engine) -> list[Any]:
    with engine.connect() as connection:
        return list(connection.execute(text(f"{HOLDERS} AND datname = current_database()")))


@pytest.fixture(params=["direct", "pooled"])
def url(request: pytest.FixtureRequest, store: Engine) -> Iterator[str]:
    """URL of the store, direct or through PgBouncer."""
    if request.param == "direct":
        yield text_of(store.url)
    elif shutil.which("pgbouncer") is None:
        pytest.skip("no PgBouncer on this machine (Debian: apt install pgbouncer)")
    else:
        with pooling(store.url, connections=6) as pooled:
            yield text_of(pooled)


def test_analysis_waits_for_another_process_until_it_ends(store: Engine, url: str) -> None:
    command = [sys.executable, "-c", HOLD, url, PROJECT]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other,
        ThreadPoolExecutor(1) as pool,
        open_store(url) as engine,
    ):
        assert other.stdout is not None
        assert other.stdout.readline() == "holds\n"
        with analysis_lock(engine, "another project"):
            pass
        second = pool.submit(_judge, engine)
        wait_until(lambda: [one for one in holders(store) if not one.granted])
        for _ in range(20):
            with engine.connect() as connection:
                assert connection.scalar(text("SELECT 1")) == 1
        assert not second.done()

        other.send_signal(signal.SIGKILL)

        second.result(timeout=TIMEOUT_S)
    assert holders(store) == []


def _judge(engine: Engine) -> None:
    with analysis_lock(engine, PROJECT):
        pass


def test_lock_does_not_hold_back_vacuum(store: Engine, url: str) -> None:
    with open_store(url) as engine, analysis_lock(engine, PROJECT):
        (holder,) = holders(store)
        assert holder.backend_xmin is None
