"""Read what a report is made of: a pair of records, or a note in their place; accepted findings."""

import os
from collections.abc import Sequence
from pathlib import Path

from roofwatch.ci.ab.noise_floor import NoiseFloor, NoiseFloorError
from roofwatch.ci.judge.pairing import Pairing
from roofwatch.ci.report import not_measured
from roofwatch.ci.report.not_measured import NotMeasured
from roofwatch.ci.static.baseline import Baseline, BaselineError, parse_baseline
from roofwatch.model.errors import RecordError
from roofwatch.model.record import RunRecord, Side
from roofwatch.model.timing_method import Preset

BASELINE_NAME = "roofwatch-static.toml"
_PREFIXES = ("base-", "head-")
_JOURNAL = ".journal"
_MAX_JOURNAL_BYTES = 100_000_000
"""The job that posts reads what an untrusted job wrote."""
_SUFFIXES = (".json", ".json.gz")


def read_measured(paths: Sequence[Path]) -> Pairing | NotMeasured | None:
    """Read what `roofwatch ab` wrote: two records, its note, or one folder with either.

    Returns:
        The records, or the note that says why there are none; None for a folder with neither.

    Raises:
        RecordError: a file is not valid, or there is no pair.
    """
    files = _files(paths)
    # A note comes first: records in its folder are of a job that was stopped.
    note = next((file for file in files if file.name == not_measured.FILE_NAME), None)
    if note is not None:
        return _read_note(note)
    is_empty_folder = len(paths) == 1 and not files and not paths[0].is_file()
    if is_empty_folder:
        return None
    return _pair(paths, files)


def journalled_count(folder: Path) -> int:
    """Count the results in the journals of a folder, of a measurement that was stopped."""
    count = 0
    for file in sorted(folder.glob(f"*{_JOURNAL}")):
        if file.is_symlink() or file.stat().st_size > _MAX_JOURNAL_BYTES:
            continue
        with file.open("rb") as lines:
            # the first line is the header
            count += max(0, sum(1 for _ in lines) - 1)
    return count


def bundled_file(paths: Sequence[Path], name: str) -> Path:
    """Return a file that came with the records, else that of the current folder."""
    bundled = (path / name for path in paths if (path / name).is_file())
    return next(bundled, Path(name))


def read_baseline(file: Path) -> Baseline:
    """Read a baseline file; empty without one.

    Raises:
        BaselineError: the file cannot be read.
    """
    try:
        return parse_baseline(file.read_text(encoding="utf-8"), name=str(file))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise BaselineError(f"{file}: cannot be read: {error}") from None


def read_noise_floor(file: Path | None, preset: Preset | None = None) -> NoiseFloor | None:
    """Read a file written by `roofwatch calibrate`, which must match the sampling of a preset if
    given; None for None.

    Raises:
        NoiseFloorError: the file cannot be read, is not a noise floor, or was sampled differently.
    """
    if file is None:
        return None
    try:
        floor = NoiseFloor.parse(file.read_bytes())
        if preset is not None:
            floor.require_same_sampling(preset)
    except OSError as error:
        raise NoiseFloorError(f"{file}: cannot be read: {error.strerror}") from None
    except NoiseFloorError as error:
        raise NoiseFloorError(f"{file}: {error}") from None
    return floor


def _pair(paths: Sequence[Path], files: Sequence[Path]) -> Pairing:
    if len(paths) == 2 and not any(path.is_dir() for path in paths):
        return Pairing(RunRecord.read(paths[0]), RunRecord.read(paths[1]))
    is_one_folder = len(paths) == 1 and (paths[0].is_dir() or not paths[0].exists())
    if not is_one_folder:
        raise RecordError("give two records, base and head, or one folder that contains them")
    by_side: dict[Side, RunRecord] = {}
    for record in map(RunRecord.read, files):
        if record.pairing is not None:
            by_side[record.pairing.side] = record
    if len(files) != 2 or set(by_side) != {Side.BASE, Side.HEAD}:
        raise RecordError(f"{paths[0]}: needs a pair of base and head, as roofwatch ab writes it")
    return Pairing(by_side[Side.BASE], by_side[Side.HEAD])


def _read_note(file: Path) -> NotMeasured:
    try:
        with file.open("rb") as opened:
            return NotMeasured.parse(opened.read(not_measured.MAX_BYTES), name=str(file))
    except OSError as error:
        raise RecordError(f"{file}: cannot be read: {error.strerror}") from None


def _files(paths: Sequence[Path]) -> list[Path]:
    """Return the files of `roofwatch ab` among files and in folders."""
    files = [path for path in paths if path.is_file() and path.name == not_measured.FILE_NAME]
    for folder in paths:
        # Follows no link out of the folder.
        for parent, _, names in os.walk(folder):
            in_folder = [Path(parent, name) for name in names]
            files += [file for file in in_folder if _is_ours(file)]
    return sorted(files)


def _is_ours(file: Path) -> bool:
    is_record = file.name.startswith(_PREFIXES) and file.name.endswith(_SUFFIXES)
    if not is_record and file.name != not_measured.FILE_NAME:
        return False
    return file.is_file() and not file.is_symlink()
