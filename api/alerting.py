"""Raise alerts after projects were judged and now and then, and send what waits, beside the answering of requests."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Engine

from roofwatch.ci.alerts.delivery import deliver_waiting
from roofwatch.ci.alerts.looking import AlertPlan, raise_alerts
from roofwatch.ci.alerts.sending import Sender

_DELIVER_EVERY_S = 60.0
_LOOK_EVERY = timedelta(minutes=10)
"""Escalation and silent runners come with time alone; what was judged is looked at once."""

_log = logging.getLogger("roofwatch.api")


@dataclass(frozen=True)
class Alerts:
    """What the service tells whom."""

    plan: AlertPlan
    channels: Mapping[str, Sender | str]
    """By name; where one cannot be used, why."""


class AlertThread:
    """Raises alerts and sends messages, when told to and now and then. Several services may do so on one store."""

    def __init__(self, engine: Engine, alerts: Alerts, now: Callable[[], datetime]) -> None:
        self._engine = engine
        self._alerts = alerts
        self._now = now
        self._look_at: datetime | None = None
        self._wake = threading.Event()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Look at once: something was judged."""
        self._look_at = None
        self._wake.set()

    def stop(self) -> None:
        """Stop after the message at hand."""
        self._is_over = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over:
            self._try("alerts cannot be raised now", self._raise)
            self._try("messages of alerts cannot be sent now", self._deliver)
            self._wake.wait(_DELIVER_EVERY_S)
            self._wake.clear()

    def _raise(self) -> None:
        now = self._now()
        if self._look_at is None or now >= self._look_at:
            # before looking: what is judged meanwhile has it look again
            self._look_at = now + _LOOK_EVERY
            try:
                raise_alerts(self._engine, self._alerts.plan, now)
            except Exception:
                self._look_at = None
                raise

    def _deliver(self) -> None:
        # one at a time, so that it can be stopped between two
        while not self._is_over and deliver_waiting(self._engine, self._alerts.channels, self._now, limit=1):
            pass

    @staticmethod
    def _try(failure: str, do: Callable[[], None]) -> None:
        try:
            do()
        except Exception as error:  # noqa: BLE001  whatever goes wrong, the next look may go right, and the door is open
            # an error's own text may quote what it was about
            _log.error("%s: %s", failure, type(error).__name__)
