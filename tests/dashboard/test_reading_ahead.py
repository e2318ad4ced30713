"""Answers are read while a browser starts the page: some at once, and nothing is lost where they cannot be had."""

import logging
import threading
from collections.abc import Mapping, Sequence
from queue import Queue
from threading import Event

import pytest
from sqlalchemy import Engine
from streamlit.runtime.scriptrunner_utils.script_run_context import get_script_run_ctx

from roofwatch.dashboard import data, reading_ahead
from roofwatch.dashboard.reading_ahead import ReadingAhead, read_ahead
from tests.builders import PROJECT
from tests.dashboard.conftest import OpenView
from tests.dashboard.history import store_history

TIMEOUT_S = 30


def test_pages_asked_for_while_enough_is_read_are_read_by_their_views(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = Queue[str](), Event()

    def read(view: str, asked: Mapping[str, Sequence[str]]) -> None:
        begun.put(f"{view} {dict(asked)}")
        assert go_on.wait(TIMEOUT_S)

    monkeypatch.setattr(reading_ahead, "read_ahead", read)
    ahead = ReadingAhead()
    readings = [
        ahead.begin("run", "project=a&class=x&class=y"),
        ahead.begin("kernel", ""),
        ahead.begin("fleet", ""),
    ]
    go_on.set()
    for reading in filter(None, readings):
        reading.join(TIMEOUT_S)
    # what has ended makes room
    later = ahead.begin("trends", "")
    assert later is not None
    later.join(TIMEOUT_S)

    assert readings[2] is None
    told = sorted(begun.get_nowait() for _ in range(begun.qsize()))
    assert told == ["kernel {}", "run {'project': ['a'], 'class': ['x', 'y']}", "trends {}"]


def test_the_log_does_not_say_each_time_that_there_is_no_page_to_draw_on(monkeypatch: pytest.MonkeyPatch) -> None:
    warned = list[str | None]()
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", lambda record: warned.append(record.threadName))
    monkeypatch.setattr(reading_ahead, "read_ahead", lambda *_: get_script_run_ctx())
    logger = logging.getLogger(get_script_run_ctx.__module__)
    monkeypatch.setattr(logger, "level", logging.WARNING)
    logger.addHandler(handler)
    try:
        reading = ReadingAhead().begin("run", "")
        assert reading is not None
        reading.join(TIMEOUT_S)
        assert warned == []
        # of other threads it is said still
        get_script_run_ctx()
        assert warned == [threading.current_thread().name]
    finally:
        logger.removeHandler(handler)


def test_a_store_that_cannot_be_read_is_told_by_the_view(
    open_view: OpenView, store: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_history(store)
    monkeypatch.setenv("ROOFWATCH_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    read_ahead("run", {})
    (error,) = open_view("run").error
    assert "The database cannot be read" in error.value


def test_of_a_project_that_is_not_there_nothing_is_read(
    open_view: OpenView, store: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_history(store)
    asked: list[str] = []

    def list_none(project: str, **_: object) -> list[object]:
        asked.append(project)
        return []

    monkeypatch.setattr(data, "list_fleet_runs", list_none)
    read_ahead("run", {"project": ["no/such"]})
    assert asked == []
    read_ahead("run", {"project": [PROJECT]})
    assert asked == [PROJECT]
