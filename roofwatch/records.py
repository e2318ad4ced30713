"""Records as commands need them: several files at once, and what failed in one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from roofwatch.collector.errors import RecordError
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.record import RunRecord

RECORD_SUFFIX = ".json.gz"
"""Of a record whose place was not chosen."""

_MOST_AT_HAND = 16
"""Records of some hundred cases take some 20 MB each."""
_RECORD_PATTERNS = ("*.json", "*.json.gz")


def read_records(paths: Sequence[Path]) -> list[RunRecord]:
    """Read files, and the records in folders, in the order of their commits, then of time.

    Raises:
        RecordError: one of them cannot be read, or a folder holds none.
    """
    return [record for _, record in read_record_files(paths)]


def read_record_files(paths: Sequence[Path]) -> Iterator[tuple[Path, RunRecord]]:
    """The same, each record with its file, beside which its artefacts lie.

    All are read before the first is given, and those that memory has no room for are read again: a history is larger.

    Raises:
        RecordError: one of them cannot be read, or a folder holds none.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            found = sorted(file for pattern in _RECORD_PATTERNS for file in path.glob(pattern))
            if not found:
                raise RecordError(f"{path}: no {' or '.join(_RECORD_PATTERNS)} file in it")
            files += found
        else:
            files.append(path)
    at_hand: dict[Path, RunRecord] = {}
    places: list[tuple[int, datetime, int]] = []
    for number, file in enumerate(files):
        record = RunRecord.read(file)
        places.append((record.commit.first_parent_count, record.started_at, number))
        if len(at_hand) < _MOST_AT_HAND:
            at_hand[file] = record
    in_order = [files[number] for _, _, number in sorted(places)]
    return ((file, at_hand.pop(file) if file in at_hand else RunRecord.read(file)) for file in in_order)


def failed_results(record: RunRecord) -> Iterator[str]:
    """One sentence for everything that failed. What this machine cannot run, or has no compiler for, has not."""
    fine = {Outcome.OK, Outcome.UNSUPPORTED}
    for measurement in record.measurements:
        if measurement.outcome not in fine:
            yield (
                f"{measurement.case_id} {measurement.implementation}: "
                f"{measurement.outcome}: {measurement.message or ''}"
            )
    for fact in record.static_facts:
        if fact.outcome not in fine:
            yield f"{fact.case_id} {fact.function} for {fact.target}: {fact.outcome}: {fact.message or ''}"


def nothing_done(records: Sequence[RunRecord]) -> str | None:
    """Why a run came to nothing, in a sentence: all that could be timed was refused, or nothing could be done at all.
    None where something was measured, or failed, or was never to be timed: Triton code without a GPU is checked and
    compiled.
    """
    measurements = [measurement for record in records for measurement in record.measurements]
    if not measurements or any(measurement.outcome is not Outcome.UNSUPPORTED for measurement in measurements):
        return None
    right = {
        (accuracy.case_id, accuracy.implementation, accuracy.executor)
        for record in records
        for accuracy in record.accuracies
        if accuracy.outcome is Outcome.OK
    }
    refused = [one for one in measurements if (one.case_id, one.implementation, "device") in right]
    if not refused and (right or any(fact.outcome is Outcome.OK for each in records for fact in each.static_facts)):
        return None
    what = "nothing could be timed" if refused else "nothing could be checked, compiled or timed"
    return f"{what}: {(refused or measurements)[0].message or 'nobody said why'}"


def time_spent(record: RunRecord) -> str:
    """Where the run's wall time went, in a line."""
    total_ns = sum(record.spent_ns.values())
    shares = (
        f"{activity.replace('_', '-')} {spent_ns / total_ns:.0%}" for activity, spent_ns in record.spent_ns.items()
    )
    return f"{total_ns / 1e9:.0f} s: {', '.join(shares)}" if total_ns else "nobody noted where the time went"
