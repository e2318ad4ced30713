"""Logs: lines of JSON with the ID of the request, and one line per change of state of an outage."""

import json
import logging
import threading
import traceback
from datetime import UTC, datetime

_FIELDS = ("request_id", "method", "route", "status", "duration_ms", "actor", "failure_count")
"""Attributes of log records that become fields."""


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: getattr(record, name) for name in _FIELDS if hasattr(record, name)}
        if record.exc_info is not None:
            line["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(line)


class Outage:
    """Logs the first failure and the recovery of something that fails again and again."""

    def __init__(self, log: logging.Logger, name: str) -> None:
        self._log = log
        self._name = name
        self._failure_count = 0
        self._lock = threading.Lock()

    def note_failure(self, detail: str) -> None:
        with self._lock:
            self._failure_count += 1
            is_first = self._failure_count == 1
        level = logging.ERROR if is_first else logging.DEBUG
        self._log.log(level, "%s failed: %s", self._name, detail)

    def note_success(self) -> None:
        with self._lock:
            failure_count, self._failure_count = self._failure_count, 0
        if failure_count:
            self._log.info(
                "%s works again",
                self._name,
                extra={"failure_count": failure_count},
            )


def log_to_stderr(*, as_json: bool = False) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(
        JsonFormatter() if as_json else logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    )
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # these repeat our lines, or log every check of the schema
    for name in ("uvicorn.error", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
