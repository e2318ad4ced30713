"""Background threads: analyse projects with new records, evaluate and send alerts."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime

from sqlalchemy import Engine

from roofwatch.ci.alerts.delivery import deliver_waiting
from roofwatch.ci.alerts.evaluation import AlertSetup, raise_alerts
from roofwatch.ci.history.analyse import analyse_project
from roofwatch.db.engine.session import reading_session
from roofwatch.db.regressions.judgements import finish_analysis, list_waiting

ANALYSIS_INTERVAL_S = 30.0
ALERTS_INTERVAL_S = 60.0

_log = logging.getLogger("roofwatch.api")


class BackgroundThread:
    """Calls a task when woken, and at an interval. Several servers may share one store.

    Args:
        name: Of the thread, also in the log.
        task: What to do.
        interval_s: Between two calls.
    """

    def __init__(self, name: str, task: Callable[[], object], interval_s: float) -> None:
        self._task = task
        self._interval_s = interval_s
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._wake.set()

    def stop(self) -> None:
        """Stop after the current step."""
        self._stopping.set()
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._task()
            except Exception as error:  # noqa: BLE001  the next call may succeed
                # without the message, which may quote a secret
                _log.error("%s failed: %s", self._thread.name, type(error).__name__)
            self._wake.wait(self._interval_s)
            self._wake.clear()


def analyse_waiting(engine: Engine) -> list[str]:
    """Analyse every project with new records, and return their names. A failure skips one project."""
    with reading_session(engine) as session:
        waiting = list_waiting(session)
    analysed = []
    for project, requested_at in waiting:
        try:
            analyse_project(engine, project)
            finish_analysis(engine, project, requested_at)
        except Exception:  # noqa: BLE001  analyse the other projects
            _log.exception("project %r could not be analysed", project)
        else:
            analysed.append(project)
    return analysed


def send_alerts(engine: Engine, alerts: AlertSetup, now: Callable[[], datetime]) -> None:
    """Evaluate alerts, and send waiting messages even if that fails."""
    try:
        raise_alerts(engine, alerts, now())
    finally:
        deliver_waiting(engine, alerts.channels, now)
