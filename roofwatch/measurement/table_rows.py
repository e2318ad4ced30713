"""Read tables of tuned configurations that projects ship, and caches of tuners."""

import csv
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from roofwatch.collector.compile.targets import target_of_device
from roofwatch.model.errors import CollectorError
from roofwatch.model.machine import Configuration
from roofwatch.model.tuning import TableRow, TunedTable
from roofwatch.spec.tuned import FORMAT

_DEVICE = re.compile(r"device(?:_name)?=([^,]+)|^(gfx[0-9a-f]+)-")
"""In the names of vLLM's and SGLang's files, and of aiter's."""
_VERSION = "triton_version"
_VERSION_FOLDER = re.compile(r"triton_(\d+(?:_\d+)+)")
"""SGLang's files lie in a folder for each release, such as `triton_3_5_1`."""
_INDUCTOR = frozenset({"configs_hash", "found_by_coordesc", "time_taken_ms", "triton_cache_hash"})
"""What TorchInductor adds to the configuration in a `.best_config` file."""


class TableError(CollectorError):
    """A file is no table of tuned configurations."""


def read_rows(file: Path) -> list[TableRow]:
    """Read the rows of a table.

    JSON: an object of configurations by label, such as vLLM's `fused_moe/configs`; the cache of
    Triton's autotuner; TorchInductor's `.best_config`; what `roofwatch tune` writes. CSV: one row a
    line, such as aiter's.

    Raises:
        TableError: the file cannot be read, or is none of these.
    """
    try:
        text = file.read_text(encoding="utf-8")
        rows = list(_csv_rows(file, text) if file.suffix == ".csv" else _json_rows(file, text))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise TableError(f"{file}: cannot be read as a table: {error}") from None
    if not any(row.configuration for row in rows):
        raise TableError(f"{file}: has no row with a configuration")
    return rows


def _json_rows(file: Path, text: str) -> Iterator[TableRow]:
    document: dict[str, Any] = json.loads(text)
    if document.get("format") == FORMAT:
        yield from _own_rows(file, TunedTable.model_validate(document))
    elif "configs_timings" in document:
        yield _fastest_of_cache(file, document)
    elif any(isinstance(value, dict) for value in document.values()):
        version = document.get(_VERSION)
        for label, configuration in document.items():
            # beside the rows, a file may say what it was tuned with
            if isinstance(configuration, dict):
                yield _row(file, label, configuration, version=version)
    else:
        configuration = {name: value for name, value in document.items() if name not in _INDUCTOR}
        yield _row(file, file.stem, configuration)


def _own_rows(file: Path, table: TunedTable) -> Iterator[TableRow]:
    for entry in table.entries:
        shape = ",".join(f"{name}={length}" for name, length in entry.shape.items())
        yield TableRow(
            file=file.name,
            label=f"{entry.kernel}/{shape}/{entry.dtype}/{entry.direction}",
            configuration=entry.configuration,
            device=entry.device,
            target=entry.target,
            triton_version=entry.versions.get("triton"),
        )


def _fastest_of_cache(file: Path, document: Mapping[str, Any]) -> TableRow:
    """Source: `Autotuner.check_disk_cache` of Triton, which stores each configuration's fields."""

    def median_ms(timed: Any) -> float:
        times = timed[1]
        return float(times[0] if isinstance(times, list) else times)

    fields = dict(min(document["configs_timings"], key=median_ms)[0])
    # what every launch has
    if fields.get("num_ctas") == 1:
        del fields["num_ctas"]
    configuration = dict(fields.pop("kwargs"))
    configuration |= {
        name: value for name, value in fields.items() if value is not None and name != "pre_hook"
    }
    return _row(file, str(document.get("key", file.stem)), configuration)


def _csv_rows(file: Path, text: str) -> Iterator[TableRow]:
    for number, cells in enumerate(csv.DictReader(text.splitlines()), start=2):
        device = cells.get("gfx") or cells.get("arch") or cells.get("device")
        configuration: Configuration = {}
        for name, cell in cells.items():
            # lines of aiter's files have fewer cells than the header, or more
            if name is not None and cell is not None:
                configuration[name] = _number(cell)
        row = _row(file, f"line {number}", configuration, device=device)
        yield row.model_copy(update={"has_other_columns": True})


def _number(cell: str) -> str | int | float | bool:
    if cell in {"True", "False"}:
        return cell == "True"
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell


def _row(
    file: Path,
    label: str,
    configuration: Configuration,
    *,
    version: str | None = None,
    device: str | None = None,
) -> TableRow:
    named = _DEVICE.search(file.name)
    if device is None and named is not None:
        device = (named[1] or named[2]).removesuffix(".json")
    folder = _VERSION_FOLDER.fullmatch(file.absolute().parent.name)
    if version is None and folder is not None:
        version = folder[1].replace("_", ".")
    return TableRow(
        file=file.name,
        label=label,
        configuration=configuration,
        device=device,
        target=None if device is None else target_of_device(device),
        triton_version=version,
    )
