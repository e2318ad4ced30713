"""Workers: processes that analyse projects with new records, beside the API."""

import logging
import os
import threading
from collections.abc import Callable

from sqlalchemy import Engine

from roofwatch.api.logs import Outage
from roofwatch.ci.history.analyse import analyse_project
from roofwatch.db.engine.session import first_line
from roofwatch.db.regressions.analysis_queue import claim_job

# how late an analysis may begin
_POLL_S = 0.5
# a database that restarts is back within seconds
_PAUSE_AFTER_ERROR_S = 5.0

_log = logging.getLogger("roofwatch.worker")


def analyse_next(engine: Engine) -> str | None:
    """Analyse the project that waits longest; return its name, or None if none waits.

    Raises:
        Exception: the analysis failed; the project waits before the next attempt.
    """
    with claim_job(engine) as job:
        if job is None:
            return None
        analyse_project(engine, job.project)
        return job.project


def analyse_waiting(engine: Engine) -> list[str]:
    """Analyse every project that waits, and return their names."""
    analysed: list[str] = []
    while (project := _analyse_next_or_log(engine)) is not None:
        if project:
            analysed.append(project)
    return analysed


def _analyse_next_or_log(engine: Engine) -> str | None:
    """As `analyse_next`; an empty name if it failed."""
    try:
        return analyse_next(engine)
    except Exception:  # noqa: BLE001  analyse the other projects
        _log.exception("an analysis failed")
        return ""


def work(engine: Engine, is_stopped: Callable[[float], bool]) -> None:
    """Analyse what waits, until stopped. `is_stopped` waits for up to some seconds."""
    outage = Outage(_log, "the analysis")
    pause_s = 0.0
    while not is_stopped(pause_s):
        try:
            project = analyse_next(engine)
        except Exception as error:  # noqa: BLE001  the next attempt may succeed
            outage.note_failure(f"{type(error).__name__}: {first_line(error)}")
            pause_s = _PAUSE_AFTER_ERROR_S
        else:
            outage.note_success()
            pause_s = 0.0 if project is not None else _POLL_S


def parent_watcher(parent_pid: int | None, stopping: threading.Event) -> Callable[[float], bool]:
    """A wait that ends when asked to stop, or when the parent process has ended."""

    def is_stopped(pause_s: float) -> bool:
        if parent_pid is not None and os.getppid() != parent_pid:
            return True
        return stopping.wait(pause_s)

    return is_stopped
