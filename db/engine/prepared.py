"""Statements that the driver prepares once it has sent them a few times: their plans stay with the connection, of which
each keeps a hundred. What makes them worthless is told as a lost connection is, with the way out.
"""

from __future__ import annotations

import re
from typing import Any

import psycopg
from sqlalchemy import URL, Engine, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import OperationalError

from roofwatch.db.errors import StoreError

THRESHOLD = "prepare_threshold"
"""In the URL of a database: after how often a statement is prepared, or `none` for never."""

_OTHER_TABLES = "RevalidateCachedQuery"
"""The function of Postgres that refuses a plan made for columns of other types. Source: so pgjdbc knows it too, as the
message may be in any language."""
_UNKNOWN = (psycopg.errors.InvalidSqlStatementName, psycopg.errors.DuplicatePreparedStatement)


def check_threshold(url: URL) -> None:
    """Refuse what the URL of a database says of preparing, unless it can be that.

    Raises:
        StoreError: neither a number nor `none`.
    """
    said = url.query.get(THRESHOLD, "none")
    if not (isinstance(said, str) and re.fullmatch(r"none|[0-9]{1,9}", said)):
        raise StoreError(
            f"the database URL says {THRESHOLD}={said!r}: write {THRESHOLD}=none where statements are not to be "
            "prepared, or after how many times they are"
        )


def prepare_as_told(engine: Engine) -> None:
    """Have connections of an engine prepare as its URL says, and say what to do where that goes wrong."""
    event.listen(engine, "do_connect", _tell_driver)
    event.listen(engine, "handle_error", _explain)


def _tell_driver(_: object, __: object, ___: object, parameters: dict[str, Any]) -> None:
    said = parameters.get(THRESHOLD)
    if said is not None:
        # the driver wants a value, and would take the text of a URL as one
        parameters[THRESHOLD] = None if said == "none" else int(said)


def _explain(context: ExceptionContext) -> None:
    error = context.original_exception
    if isinstance(error, psycopg.errors.FeatureNotSupported) and error.diag.source_function == _OTHER_TABLES:
        # all connections have prepared for the tables as they were: one answer is lost, not one for each of them
        context.is_disconnect = True
        said = "its tables are others than a moment ago, and so what was prepared for them is forgotten"
    elif isinstance(error, _UNKNOWN):
        said = (
            f"what was prepared is not on this connection of the server, as behind a proxy that hands out another for "
            f"each transaction; add {THRESHOLD}=none to the database URL"
        )
    else:
        return
    raise OperationalError(context.statement, None, psycopg.OperationalError(said))
