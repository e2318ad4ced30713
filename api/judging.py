"""Judge projects after records of them came in, one after the other, beside the answering of requests."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from roofwatch.ci.history.analyse import analyse_project
from roofwatch.db.engine.session import reading_session
from roofwatch.db.errors import StoreError
from roofwatch.db.regressions.judging import list_waiting, note_judgement

_LOOK_EVERY_S = 30.0

_log = logging.getLogger("roofwatch.api")


def judge_waiting(engine: Engine) -> list[str]:
    """Judge every project that waits; their names. One that cannot be judged does not hold the others."""
    with reading_session(engine) as session:
        waiting = list_waiting(session)
    judged = []
    for project, asked_at in waiting:
        try:
            analyse_project(engine, project)
            note_judgement(engine, project, asked_at)
        except Exception:  # noqa: BLE001  whatever a history does to the judgement, others are judged and the door is open
            _log.exception("project %r could not be judged", project)
        else:
            judged.append(project)
    return judged


class JudgeThread:
    """Judges what waits, when told to and now and then.

    Args:
        engine: Of the store.
        on_judged: Called after something was judged.
    """

    def __init__(self, engine: Engine, *, on_judged: Callable[[], None] = lambda: None) -> None:
        self._engine = engine
        self._on_judged = on_judged
        self._wake = threading.Event()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="judging", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._wake.set()

    def stop(self) -> None:
        """Stop after the judgement at hand."""
        self._is_over = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over:
            try:
                if judge_waiting(self._engine):
                    self._on_judged()
            except (StoreError, SQLAlchemyError) as error:
                _log.error("no project can be judged now: %s", type(error).__name__)
            self._wake.wait(_LOOK_EVERY_S)
            self._wake.clear()
