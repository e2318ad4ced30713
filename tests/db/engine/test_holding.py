"""Locks that are held for as long as something takes: by one at a time, and by nobody who is gone."""

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
from sqlalchemy import URL, Engine, text

from roofwatch.db.engine.session import ANALYSIS, analysis_lock, open_store
from tests.builders import PROJECT
from tests.db.engine.pgbouncer import pooling

A_MINUTE_S = 60
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
    deadline_s = time.monotonic() + A_MINUTE_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def text_of(url: URL, **query: str) -> str:
    return url.update_query_dict(query).render_as_string(hide_password=False)


def holders(engine: Engine) -> list[Any]:
    with engine.connect() as connection:
        return list(connection.execute(text(f"{HOLDERS} AND datname = current_database()")))


def backends(engine: Engine) -> set[int]:
    with engine.connect() as connection:
        return set(connection.scalars(text("SELECT pid FROM pg_stat_activity")))


@pytest.fixture(params=["straight", "pooled"])
def way(request: pytest.FixtureRequest, store: Engine) -> Iterator[str]:
    """How the store is reached: by its own URL, or through PgBouncer, which hands out six connections of the server,
    each for a transaction.
    """
    if request.param == "straight":
        yield text_of(store.url)
    elif shutil.which("pgbouncer") is None:
        pytest.skip("no PgBouncer on this machine (Debian: apt install pgbouncer)")
    else:
        with pooling(store.url, connections=6) as url:
            yield text_of(url)


def test_a_judgement_waits_for_the_one_of_another_process_and_not_for_one_that_was_killed(
    store: Engine, way: str
) -> None:
    command = [sys.executable, "-c", HOLD, way, PROJECT]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other,
        ThreadPoolExecutor(1) as beside,
        open_store(way) as engine,
    ):
        assert other.stdout is not None
        assert other.stdout.readline() == "holds\n"
        with analysis_lock(engine, "another project"):
            pass
        second = beside.submit(_judge, engine)
        wait_until(lambda: [one for one in holders(store) if not one.granted])
        # others come and go on the connections of the server meanwhile
        for _ in range(20):
            with engine.connect() as connection:
                assert connection.scalar(text("SELECT 1")) == 1
        assert not second.done()

        other.send_signal(signal.SIGKILL)

        second.result(timeout=A_MINUTE_S)
    assert holders(store) == []


def _judge(engine: Engine) -> None:
    with analysis_lock(engine, PROJECT):
        pass


def test_who_holds_a_lock_keeps_no_row_from_being_vacuumed(store: Engine, way: str) -> None:
    with open_store(way) as engine, analysis_lock(engine, PROJECT):
        (holder,) = holders(store)
        assert holder.backend_xmin is None


def test_a_lock_outlasts_what_other_transactions_are_given(store: Engine) -> None:
    impatient = text_of(store.url, options="-c idle_in_transaction_session_timeout=1000")
    with open_store(impatient) as engine, analysis_lock(engine, PROJECT):
        (holder,) = holders(store)
        idle = engine.connect()
        pid = idle.scalar(text("SELECT pg_backend_pid()"))
        wait_until(lambda: pid not in backends(store))
        idle.invalidate()
        idle.close()

        assert [one.pid for one in holders(store)] == [holder.pid]
