"""Data of a published site: files for each month and runner class, which only grow.

A run is added once, to the newest file of its month. A file that is large enough is not written
again, so that adding a run to a long history writes little.
"""

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from roofwatch.model.errors import RecordError
from roofwatch.model.files import atomic_write, make_folder
from roofwatch.model.history import Series, SeriesKey, SeriesPoint

STATIC_RUNNER = "compiled code and accuracy"
"""Stands for the runner class of series that have none."""
# Of SHA-256: 48 bits are enough for the series of a project.
_ID_LENGTH = 12
MAX_VALUES = 40_000
"""Of a file, unless one run has more: about 0.5 MB."""
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
    """The values of one runner class in one month, or a part of them."""

    runner: str
    month: str
    """`2026-11`."""
    part: int = 1
    """Number of the file within its month."""
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Commit and time by run id, in the order in which they were added."""
    values: dict[str, list[list[Any]]] = field(default_factory=dict)
    """By series: the number of the run, value, first and third quartile."""

    def __post_init__(self) -> None:
        self._numbers = {run_id: number for number, run_id in enumerate(self.runs)}

    @property
    def name(self) -> str:
        whole = f"{self.month}-{id_of(self.runner)}"
        if self.part == 1:
            return whole
        return f"{whole}-{self.part}"

    @property
    def is_full(self) -> bool:
        return sum(map(len, self.values.values())) >= MAX_VALUES

    def series_with_values(self) -> set[str]:
        """Series that were measured, not only tried."""
        return {series for series, points in self.values.items() if _has_value(points)}

    def add(self, series: str, point: SeriesPoint) -> None:
        commit = point.commit
        if point.run_id not in self.runs:
            self.runs[point.run_id] = {
                "sha": commit.sha,
                "position": commit.first_parent_count,
                "date": commit.committed_at.isoformat(),
                "measured": point.measured_at.isoformat(),
                "author": commit.author,
                "subject": commit.subject,
            }
            self._numbers[point.run_id] = len(self._numbers)
        values = [_rounded(point.value), _rounded(point.low), _rounded(point.high)]
        # a series repeats the number of a run rather than its long id
        self.values.setdefault(series, []).append([self._numbers[point.run_id], *values])

    def to_document(self) -> dict[str, Any]:
        return {
            "runner": self.runner,
            "month": self.month,
            "part": self.part,
            "runs": [{"id": run_id, **run} for run_id, run in self.runs.items()],
            "values": self.values,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Shard":
        runs: dict[str, dict[str, Any]] = {}
        for run in document["runs"]:
            runs[run["id"]] = {name: value for name, value in run.items() if name != "id"}
        return cls(
            runner=document["runner"],
            month=document["month"],
            part=document["part"],
            runs=runs,
            values=document["values"],
        )


def _has_value(points: Iterable[list[Any]]) -> bool:
    return any(value is not None for _, value, _, _ in points)


def grow(published: Iterable[Shard], history: Iterable[Series]) -> list[Shard]:
    """Add the runs of a history that are not published; return the files that changed.

    What was published stays as it is, also if the history lost or changed it.
    """
    newest: dict[tuple[str, str], Shard] = {}
    published_runs: dict[str, set[str]] = {}
    for shard in published:
        published_runs.setdefault(shard.runner, set()).update(shard.runs)
        subject = shard.runner, shard.month
        if subject not in newest or newest[subject].part < shard.part:
            newest[subject] = shard
    changed: dict[str, Shard] = {}
    new_points = _new_points(published_runs, history)
    # by time, so that the same runs make the same files
    for subject, _, _, points in sorted(new_points, key=lambda run: run[:3]):
        shard = newest.setdefault(subject, Shard(*subject))
        if shard.is_full:
            shard = Shard(*subject, part=shard.part + 1)
            newest[subject] = shard
        changed[shard.name] = shard
        for series, point in points:
            shard.add(series, point)
    return list(changed.values())


_NewRun = tuple[tuple[str, str], datetime, str, list[tuple[str, SeriesPoint]]]
"""Runner class with month, time, run, and its points by series."""


def _new_points(
    published_runs: Mapping[str, Collection[str]], history: Iterable[Series]
) -> list[_NewRun]:
    runs: dict[tuple[str, str], _NewRun] = {}
    for series in history:
        runner = series.key.runner_class or STATIC_RUNNER
        name = series_id(series.key)
        published = published_runs.get(runner, ())
        for point in series.points:
            if point.run_id in published:
                continue
            month = f"{point.measured_at:%Y-%m}"
            new_run: _NewRun = ((runner, month), point.measured_at, point.run_id, [])
            _, _, _, points = runs.setdefault((runner, point.run_id), new_run)
            points.append((name, point))
    return list(runs.values())


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
        document = orjson.loads(gzip.decompress(packed))
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
