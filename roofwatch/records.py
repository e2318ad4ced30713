"""Read several record files at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from collector.errors import RecordError
from collector.record import RunRecord


def read_records(paths: Sequence[Path]) -> list[RunRecord]:
    """Read files, and the `*.json` files of folders, in the order of their commits, then of time.

    Raises:
        RecordError: one of them cannot be read, or a folder holds none.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            found = sorted(path.glob("*.json"))
            if not found:
                raise RecordError(f"{path}: no *.json file in it")
            files += found
        else:
            files.append(path)
    records = [RunRecord.read(file) for file in files]
    return sorted(records, key=lambda record: (record.commit.first_parent_count, record.started_at))
