"""What a record says, as a document: hashed, to be told from others."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import orjson

from collector.record import RunRecord
from db.errors import IngestError
from db.storing.saying import write


class Content:
    """What a record says.

    Args:
        record: That says it.
        known_hash: Its content hash, for who knows it from the store.
    """

    def __init__(self, record: RunRecord, known_hash: str | None = None) -> None:
        self._record = record
        self._known_hash = known_hash

    @property
    def unread_fields(self) -> dict[str, Any]:
        """Fields that this version only keeps, by their path."""
        return self._record.unread_fields() if self._written[1] else {}

    @property
    def hash(self) -> str:
        """The record's content hash.

        Raises:
            IngestError: something that it says cannot be stored.
        """
        return self._written[0] if self._known_hash is None else self._known_hash

    @cached_property
    def _written(self) -> tuple[str, bool]:
        """The hash of what the record says, and whether it has fields that are not known."""
        try:
            document, has_unread = write(self._record)
        except orjson.JSONEncodeError as error:
            raise IngestError(f"{name_run(self._record)}: a number is out of range: {error}; measure again") from None
        # a lone character is found ten times as fast as several, and hardly a record has this one
        if b"\\" in document and b"\\u0000" in document:
            refuse_nul(self._record)
        return hashlib.sha256(document).hexdigest(), has_unread


def name_run(record: RunRecord) -> str:
    """How errors call the run."""
    return f"run {record.run_id} of {record.project}"


def refuse_nul(record: RunRecord) -> None:
    """Raises IngestError where the record has a character that a database cannot store, and says where."""
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
