"""Write the chosen configurations of `roofwatch tune` into the file that a kernel reads."""

import json
from collections.abc import Sequence
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pydantic import ValidationError

from roofwatch import __version__
from roofwatch.model.errors import CollectorError
from roofwatch.model.files import atomic_write
from roofwatch.model.tuning import TunedCase, TunedEntry, TunedTable
from roofwatch.spec.tuned import FORMAT


def write_tuned(
    file: Path,
    cases: Sequence[TunedCase],
    *,
    command: str,
    made_on: date,
) -> TunedTable:
    """Add the choices to a file; what it has about other devices, kernels and shapes stays.

    Raises:
        CollectorError: the file exists and is no such table, or cannot be written.
    """
    entries = {entry.subject: entry for entry in _read(file).entries}
    for case in cases:
        entry = _entry(case, command=command, made_on=made_on)
        if entry is not None:
            entries[entry.subject] = entry
    ordered = sorted(entries.values(), key=lambda entry: entry.sort_key)
    table = TunedTable(format=FORMAT, entries=tuple(ordered))
    # one entry a line: a change of one is one line of a diff
    lines = [
        json.dumps(entry.model_dump(mode="json", exclude_defaults=True)) for entry in table.entries
    ]
    joined = ",\n".join(lines)
    text = f'{{"format": {json.dumps(table.format)}, "entries": [\n{joined}\n]}}\n'
    try:
        atomic_write(file, text.encode())
    except OSError as error:
        raise CollectorError(f"{file}: cannot be written: {error.strerror}") from None
    return table


def _read(file: Path) -> TunedTable:
    if not file.exists():
        return TunedTable(format=FORMAT)
    try:
        return TunedTable.model_validate_json(file.read_bytes())
    except ValidationError:
        raise CollectorError(
            f"{file}: is no table of tuned configurations; give --output another name"
        ) from None


def _entry(case: TunedCase, *, command: str, made_on: date) -> TunedEntry | None:
    chosen = case.chosen
    if chosen is None:
        return None
    time_ns = chosen.median_ns if case.evidence == "measured" else chosen.predicted_ns
    return TunedEntry.model_validate(
        {
            "kernel": case.kernel,
            "implementation": case.implementation,
            "function": case.function,
            "shape": case.shape,
            "dtype": case.dtype,
            "direction": case.direction,
            "device": case.device,
            "target": case.target,
            "configuration": chosen.configuration,
            "evidence": case.evidence,
            "time_ns": time_ns,
            "tried_count": len(case.tried),
            "made_on": made_on.isoformat(),
            "made_by": command,
            "versions": _versions(),
        }
    )


def _versions() -> dict[str, str]:
    versions = {"roofwatch": __version__}
    for package in ("torch", "triton"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions
