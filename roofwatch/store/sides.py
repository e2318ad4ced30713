"""The two records of a comparison: files, or what is stored of commits and runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from roofwatch.ci.ab.noise_floor import NoiseFloor
from roofwatch.collector.errors import RecordError
from roofwatch.collector.record.record import RunRecord
from roofwatch.store.source import open_source

_STORED = re.compile(r"[0-9a-f-]{4,64}")
"""What a commit or a run is named by."""


@dataclass(frozen=True)
class Sides:
    """What is compared."""

    base: RunRecord
    head: RunRecord
    noise_floor: NoiseFloor | None = None
    """Of the head's runner, by its stored calibrations, where something stored was read and has one."""


def read_sides(
    base: Path,
    head: Path,
    *,
    project: str | None,
    url: str | None,
    runner_class: str | None = None,
    with_noise_floor: bool = True,
) -> Sides:
    """The records of base and head, and the noise that is known of their runner.

    Args:
        base: Record file; or, of a project, the sha of a commit, its beginning, or the id of a run.
        head: Likewise. Two commits are compared by the newest pair that measured just these two, else by the run that
            speaks for each; one against a file by the run that speaks for it on the file's runner class.
        project: Of what is stored; None where both are files.
        url: Of the server to read through; left out as `open_source` says.
        runner_class: Of what is stored, only on this one.
        with_noise_floor: Look for stored calibrations.

    Raises:
        RecordError: a file cannot be read, or nobody said of which project a commit is.
        SpoolError: the server cannot be asked, or knows no such run.
        StoreError: the store cannot be opened, or has no such run.
    """
    if project is None:
        if url is not None or runner_class is not None:
            raise RecordError("of which project? What is stored is read with --project")
        for side in (base, head):
            if _STORED.fullmatch(str(side)) and not side.exists():
                raise RecordError(f"{side}: no such file; if it is a stored commit or run, say of which --project")
        return Sides(RunRecord.read(base), RunRecord.read(head))
    sides = (base, head)
    files = [RunRecord.read(side) if side.is_file() else None for side in sides]
    measured_on = [record.environment.runner_class for record in files if record is not None]
    # a file's run is no side of a stored pair: the other side is then asked for by itself
    names = [str(side) for side, record in zip(sides, files, strict=True) if record is None]
    if not names:
        raise RecordError(f"{base} and {head} are files: leave --project out")
    with open_source(url) as source:
        run_ids = source.find_sides(project, names[0], names[-1], runner_class or next(iter(measured_on), None))
        read = [record or source.load_record(run_id) for record, run_id in zip(files, run_ids, strict=True)]
        # a head that is a file was asked for by the runner class of its run
        floor = source.read_noise_floor(project, run_ids[1]) if with_noise_floor else None
    return Sides(read[0], read[1], floor if floor is not None and floor.is_of_runner(read[1]) else None)
