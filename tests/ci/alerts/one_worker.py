"""A process that raises alerts or delivers them, and kills itself at a step: `python -m tests.ci.alerts.one_worker`.

It reads from standard input: the database, the file of rules, what to do, and the step, a line each. The steps are
those at which a power cut could come: before and after each commit, and around the sending.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

from sqlalchemy import Connection, create_engine, event

from roofwatch.alerting import read_alerts
from roofwatch.ci.alerts.delivery import Sender, deliver_waiting
from roofwatch.ci.alerts.evaluation import raise_alerts
from roofwatch.db.alerts.values import Delivery
from roofwatch.settings import Settings
from tests.builders import NOON


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class _Dying:
    """A channel whose process dies before or after it has sent."""

    def __init__(self, sender: Sender, step: str) -> None:
        self._sender, self._step = sender, step

    def send(self, delivery: Delivery) -> None:
        if self._step == "before sending":
            die()
        self._sender.send(delivery)
        if self._step == "after sending":
            die()


def main() -> None:
    url, rules, doing, step = sys.stdin.read().splitlines()
    engine = create_engine(url)
    written: list[Connection] = []

    @event.listens_for(engine, "commit")
    def note(connection: Connection) -> None:
        written.append(connection)
        if step == f"before commit {len(written)}":
            die()

    # the pool takes a connection back once its transaction is over on the server
    @event.listens_for(engine, "checkin")
    def note_end(*_: object) -> None:
        if step == f"after commit {len(written)}":
            die()

    alerts = read_alerts(Path(rules), Settings())
    if doing == "raise":
        raise_alerts(engine, alerts.plan, NOON + timedelta(hours=2), ["example/project"])
    else:
        channels = {name: one if isinstance(one, str) else _Dying(one, step) for name, one in alerts.channels.items()}
        deliver_waiting(engine, channels, lambda: NOON + timedelta(hours=2))


if __name__ == "__main__":
    main()
