"""Data of a published site: one file for each month and runner class, which only grows."""

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roofwatch.model.errors import RecordError
from roofwatch.model.files import atomic_write, make_folder
from roofwatch.model.history import Series, SeriesKey, SeriesPoint

STATIC_RUNNER = "compiled code and accuracy"
"""Stands for the runner class of series that have none."""
# Of SHA-256: 48 bits are enough for the series of a project.
_ID_LENGTH = 12
_CALL = re.compile(rb'roofwatch\("([^"]*)", "([^"]*)"\);\n?')


def id_of(*parts: str) -> str:
    """A short name for a file or a key that does not change when others are added."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_ID_LENGTH]


def series_id(key: SeriesKey) -> str:
    return id_of(
        key.case_id,
        key.implementation,
        key.metric,
        key.runner_class,
        key.function,
        key.target,
        key.tensor,
    )


@dataclass
class Shard:
    """The values of one runner class in one month."""

    runner: str
    month: str
    """`2026-11`."""
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Commit and time by run id."""
    values: dict[str, dict[str, list[float | None]]] = field(default_factory=dict)
    """Value, first and third quartile by series and run."""

    @property
    def name(self) -> str:
        return f"{self.month}-{id_of(self.runner)}"

    def add(self, series: str, point: SeriesPoint) -> None:
        commit = point.commit
        self.runs[point.run_id] = {
            "sha": commit.sha,
            "position": commit.first_parent_count,
            "date": commit.committed_at.isoformat(),
            "measured": point.measured_at.isoformat(),
            "author": commit.author,
            "subject": commit.subject,
        }
        values = [_rounded(point.value), _rounded(point.low), _rounded(point.high)]
        self.values.setdefault(series, {})[point.run_id] = values

    def add_all(self, shard: "Shard") -> None:
        """Take what the other shard has and this one has not."""
        # What was published stays: a store may have lost old runs.
        self.runs = shard.runs | self.runs
        for series, values in shard.values.items():
            self.values[series] = values | self.values.get(series, {})

    def to_document(self) -> dict[str, Any]:
        """Sorted, so that equal data make equal files."""
        runs = sorted(self.runs)
        numbers = {run_id: number for number, run_id in enumerate(runs)}
        # A series repeats the position of a run rather than its long id.
        values: dict[str, list[list[Any]]] = {}
        for series in sorted(self.values):
            by_run = self.values[series]
            values[series] = [[numbers[run_id], *by_run[run_id]] for run_id in sorted(by_run)]
        return {
            "runner": self.runner,
            "month": self.month,
            "runs": [{"id": run_id, **self.runs[run_id]} for run_id in runs],
            "values": values,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Shard":
        run_ids = [run["id"] for run in document["runs"]]
        runs: dict[str, dict[str, Any]] = {}
        for run in document["runs"]:
            runs[run["id"]] = {name: value for name, value in run.items() if name != "id"}
        values: dict[str, dict[str, list[float | None]]] = {}
        for series, rows in document["values"].items():
            values[series] = {run_ids[number]: triple for number, *triple in rows}
        return cls(document["runner"], document["month"], runs, values)


def shards_of(history: Iterable[Series]) -> list[Shard]:
    """Group the points of a history by runner class and by the month of the measurement."""
    shards: dict[tuple[str, str], Shard] = {}
    for series in history:
        runner = series.key.runner_class or STATIC_RUNNER
        name = series_id(series.key)
        for point in series.points:
            month = f"{point.measured_at:%Y-%m}"
            shard = shards.setdefault((runner, month), Shard(runner, month))
            shard.add(name, point)
    return [shards[key] for key in sorted(shards)]


def write_script(path: Path, document: Mapping[str, Any]) -> bool:
    """Write data that a page loads as a script, also from `file://`; returns whether it changed.

    The document is compressed: a browser reads it with `DecompressionStream`.

    Raises:
        OSError: it cannot be written; the old file is unchanged.
    """
    text = json.dumps(document, separators=(",", ":"), sort_keys=True, allow_nan=False)
    # Without a time in its header, equal data make an equal file.
    packed = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    content = f'roofwatch("{path.stem}", "{packed}");\n'.encode()
    # git and caches see that nothing changed.
    if path.exists() and path.read_bytes() == content:
        return False
    make_folder(path.parent)
    atomic_write(path, content)
    return True


def read_script(path: Path) -> dict[str, Any]:
    """Read what `write_script` wrote.

    Raises:
        RecordError: it is damaged.
    """
    call = _CALL.fullmatch(path.read_bytes())
    try:
        if call is None:
            raise ValueError("not a script of data")
        packed = base64.b64decode(call[2], validate=True)
        document = json.loads(gzip.decompress(packed))
        if not isinstance(document, dict):
            raise TypeError("not an object")
    except (ValueError, TypeError, OSError, EOFError) as error:
        raise RecordError(
            f"{path}: cannot be read ({error}); nothing was written. Restore it from the branch's "
            f"history, or delete it to publish only what the source has"
        ) from None
    return document


def _rounded(value: float | None) -> float | None:
    """Five digits are more than any timer has."""
    if value is None:
        return None
    return float(f"{value:.5g}")
