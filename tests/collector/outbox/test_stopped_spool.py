"""Whoever is stopped between any two changes of the disk leaves a record with its file in one place, whole."""

import contextlib
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from roofwatch.collector.outbox.artefact_folder import ArtefactFolder
from roofwatch.collector.outbox.spool import Refused, Spool
from roofwatch.collector.record.record import RunRecord
from tests.builders import make_record
from tests.collector.outbox.test_spool import Server, record_with_artefact

_CHANGES = ("open", "mkdir", "replace", "unlink", "rmdir", "fsync")
"""Functions of `os` that all of the spool's changes go through, and some that change nothing."""


class Stopped(BaseException):
    """As SystemExit of a signal does, it goes through every handler of errors."""


class Stop:
    """Stops before the change of this number.

    Args:
        number: From 1.
        is_kill: No change is made any more, as by SIGKILL or a power cut; else what cleans up is let do so.
    """

    def __init__(self, number: int, *, is_kill: bool) -> None:
        self._left = number
        self._is_kill = is_kill

    @property
    def has_come(self) -> bool:
        return self._left <= 0

    def before(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def stopping(*arguments: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left == 0 or (self._left < 0 and self._is_kill):
                raise Stopped
            return change(*arguments, **options)

        return stopping


def run_until(stop: Stop, monkeypatch: pytest.MonkeyPatch, run: Callable[[], None]) -> None:
    with monkeypatch.context() as patch, contextlib.suppress(Stopped):
        for name in _CHANGES:
            patch.setattr(os, name, stop.before(getattr(os, name)))
        run()


def is_aside(spool: Spool, record: RunRecord) -> bool:
    """Whether the record lies there, and all its files."""
    found = list((spool.folder / "refused").glob(f"{record.run_id}-*.json.gz"))
    files = [spool.folder / "refused" / f"{path.name}.artefacts" for path in found]
    return [RunRecord.read(path) for path in found] == [record] and all(
        (folder / one.sha256).read_bytes() == b"a trace" for folder in files for one in record.artefacts
    )


@pytest.mark.parametrize("is_kill", [True, False], ids=["killed", "ended"])
@pytest.mark.parametrize("answer", [None, Refused("HTTP 422: no")], ids=["taken", "refused"])
def test_a_push_stopped_anywhere_leaves_each_record_complete_in_one_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, answer: Refused | None, is_kill: bool
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # nothing here is to outlive the machine
    artefacts = ArtefactFolder(tmp_path / "artefacts")
    waiting, new = record_with_artefact(artefacts, tmp_path), make_record(1)
    places = []
    for number in count(1):
        stop, server, spool = Stop(number, is_kill=is_kill), Server(answer, answer), Spool(tmp_path / str(number))
        spool.submit(waiting, artefacts)

        def push(spool: Spool = spool, server: Server = server) -> None:
            spool.submit(new)
            spool.submit(waiting, artefacts)
            spool.deliver(server, attempts=1)

        run_until(stop, monkeypatch, push)

        if is_aside(spool, waiting):
            places.append("aside")
            assert waiting not in map(RunRecord.read, spool.waiting)
        else:
            places.append("taken" if waiting.run_id in server.accepted else "in the spool")
            server.answers.clear()  # as by another token
            later = spool.deliver(server, attempts=1)
            assert (later.left, later.incomplete) == ([], [])
            assert waiting.run_id in server.accepted
            assert server.files == {waiting.artefacts[0].sha256}
        if not stop.has_come:
            break
    assert sorted(set(places)) == sorted({"in the spool", "aside" if answer else "taken"})
