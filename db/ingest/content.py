"""The content hash of a record, and the search for what a database cannot store."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import orjson

from roofwatch.collector.record.record import RunRecord
from roofwatch.db.errors import IngestError


def content_hash(record: RunRecord) -> str:
    """The record's content hash, as `RunRecord.content_hash` gives it.

    Raises:
        IngestError: the record has a value that cannot be stored.
    """
    try:
        document = orjson.dumps(record.to_dict(), option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError as error:
        raise IngestError(f"{name_run(record)}: a number is out of range: {error}; measure again") from None
    if b"\\u0000" in document:
        refuse_nul(record)
    return hashlib.sha256(document).hexdigest()


def name_run(record: RunRecord) -> str:
    """How errors call the run."""
    return f"run {record.run_id} of {record.project}"


def refuse_nul(record: RunRecord) -> None:
    """Raise IngestError with the place of a NUL character, if the record has one."""
    where = _path_to_nul(record.model_dump(mode="json"))
    if where is not None:
        raise IngestError(
            f"{name_run(record)}: {where} contains a NUL character, which a database cannot store; remove it and send "
            "the record again"
        )


def _path_to_nul(value: object) -> str | None:
    """Path of the first string with a NUL in it."""
    if isinstance(value, str):
        return "" if "\0" in value else None
    children: Sequence[tuple[object, object]] = ()
    if isinstance(value, dict):
        for key in value:
            if "\0" in key:
                return repr(key)
        children = list(value.items())
    elif isinstance(value, list):
        children = list(enumerate(value))
    for step, child in children:
        rest = _path_to_nul(child)
        if rest is not None:
            return f"{step}.{rest}" if rest else str(step)
    return None
