"""What a record says, as a document: hashed, to be told from others."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import orjson
from pydantic import BaseModel

from roofwatch.collector.record.record import RunRecord
from roofwatch.db.errors import IngestError
from roofwatch.db.ingest.said_measurements import Gathering, SaidMeasurements
from roofwatch.db.ingest.saying import write


class Content:
    """What a record says.

    Args:
        record: That says it.
        known_hash: Its content hash, for who knows it from the store.
    """

    def __init__(self, record: RunRecord, known_hash: str | None = None) -> None:
        self._record = record
        self._known_hash = known_hash
        self._written: tuple[str, bool] | None = None
        """The hash of what the record says, and whether it has fields that are not known."""
        self._said: list[SaidMeasurements] = []
        """What was said before anybody asked for it."""

    def measurements(self) -> Iterator[SaidMeasurements]:
        """What measurements say, so many at a time, in their order; the record is hashed meanwhile. To be asked once.

        Raises:
            IngestError: something that it says cannot be stored.
        """
        return self._gather() if self._written is None else iter(self._said)

    @property
    def unread_fields(self) -> dict[str, Any]:
        """Fields that this version only keeps, by their path."""
        return self._record.unread_fields() if self._say()[1] else {}

    @property
    def hash(self) -> str:
        """The record's content hash.

        Raises:
            IngestError: something that it says cannot be stored.
        """
        return self._say()[0] if self._known_hash is None else self._known_hash

    def _gather(self) -> Iterator[SaidMeasurements]:
        digest, unread, gathering = hashlib.sha256(), list[BaseModel](), Gathering(len(self._record.measurements))
        pieces = write(self._record, unread, gathering.take)
        try:
            for piece in pieces:
                # a lone character is found ten times as fast as several, and hardly a record has this one
                if b"\\" in piece and b"\\u0000" in piece:
                    refuse_nul(self._record)
                digest.update(piece)
                if gathering.is_full:
                    yield gathering.give()
        except orjson.JSONEncodeError as error:
            raise IngestError(f"{name_run(self._record)}: a number is out of range: {error}; measure again") from None
        self._written = digest.hexdigest(), bool(unread)

    def _say(self) -> tuple[str, bool]:
        if self._written is None:
            self._said = list(self._gather())
        assert self._written is not None  # all of it was said
        return self._written


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
