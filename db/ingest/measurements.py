"""Measurements of a record on their way into the store: the summary of each, and its samples, packed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from roofwatch.collector.record.part import Outcome
from roofwatch.collector.record.record import RunRecord
from roofwatch.db.ingest.column_bytes import Column, Same
from roofwatch.db.ingest.run_key import RunKey
from roofwatch.db.ingest.said_measurements import SaidMeasurements
from roofwatch.db.ingest.sample_summary import summarise
from roofwatch.db.ingest.series_rows import Identity
from roofwatch.db.ingest.staging import Columns, Target
from roofwatch.db.schema.results import MeasurementRow

_OF_RUN = {"run_number": "int4", "measured_on": "date", "series_id": "int4"}
_VALUES = {
    "outcome": "int2",
    "message": "text",
    "median_ns": "float8",
    "below_ns": "float4",
    "above_ns": "float4",
    "sample_count": "int4",
    "block_count": "int2",
    "utilisation": "float8",
    "joules_per_launch": "float8",
    "is_memory_bound": "bool",
    "host_ns": "float4",
    "peak_allocated_bytes": "float4",
}
SUMMARY_FIELDS = tuple(_VALUES)
"""Columns of what is told of a measurement."""
_SUMMARIES = Target("measurement", _OF_RUN | _VALUES)
_SAMPLE_SETS = Target("sample_set", _OF_RUN | {"content": "bytea"})
_CODES = {outcome: MeasurementRow.outcome.type.words.index(outcome) for outcome in Outcome}
_LARGEST_SINGLE = float(np.finfo(np.float32).max)


class Measurements:
    """Those of a record."""

    def __init__(self, record: RunRecord) -> None:
        self._all = record.measurements
        self._case_places = {case.case_id: place for place, case in enumerate(record.cases)}

    def identities(self, version_ids: Sequence[int]) -> list[Identity]:
        """What makes the series of each, by the ids of what is said of the record's cases."""
        return [
            Identity(version_ids[self._case_places[one.case_id]], one.implementation, one.timer, one.cache)
            for one in self._all
        ]

    def are_there(self, said: SaidMeasurements) -> dict[str, list[bool]]:
        """By flag of series whether each of those of which that is said has the value (`FLAGS` of `series_rows.py`)."""
        its_own = slice(said.begin, said.end)
        return {
            "has_utilisation": [one.utilisation is not None for one in self._all[its_own]],
            "has_energy": [joules is not None for joules in said.joules],
            "has_host_time": [host_ns is not None for host_ns in said.hosts_ns],
            "has_memory": [peak is not None for peak in said.peaks],
        }

    def launch_counts(self, said: SaidMeasurements) -> list[int]:
        """Launches that were timed, of those of which that is said."""
        some = self._all[said.begin : said.end]
        return [count * one.launches_per_sample for count, one in zip(said.counts, some, strict=True)]

    def summaries(self, key: RunKey, series_ids: Sequence[int], said: SaidMeasurements) -> Columns:
        """A row of each of which that is said; `series_ids` are those of all."""
        return load_summaries(key, series_ids[said.begin : said.end], self._summaries(said))

    def _summaries(self, said: SaidMeasurements) -> list[Column]:
        """By column."""
        its_own = slice(said.begin, said.end)
        some, counts = self._all[its_own], said.counts
        summary = summarise(said.samples_ns, [count for count in counts if count])
        medians = summary.medians
        # a quartile so small that the difference is the median itself is still above zero
        below = towards_zero(np.minimum(medians - summary.first_quartiles, np.nextafter(medians, 0)))
        above = towards_zero(summary.third_quartiles - medians)
        return [
            [_CODES[one.outcome] for one in some],
            [one.message for one in some],
            *(_of_timed(values, counts) for values in (medians, below, above)),
            [count or None for count in counts],
            [count or None for count in said.block_counts],
            [one.utilisation for one in some],
            said.joules,
            [None if one.bound is None else one.bound == "memory" for one in some],
            list(map(to_single, said.hosts_ns)),
            list(map(to_single, said.peaks)),
        ]


def load_samples(key: RunKey, series_ids: Sequence[int], said: SaidMeasurements, packed: Sequence[bytes]) -> Columns:
    """What `SaidMeasurements.pack` gave, each with its series; `series_ids` are those of all measurements."""
    of_sets = list(compress(series_ids[said.begin : said.end], said.have_more))
    return Columns(_SAMPLE_SETS, (*map(Same, key), of_sets, packed), len(packed))


def load_summaries(key: RunKey, series_ids: Sequence[int], summaries: Sequence[Column]) -> Columns:
    """What there is to tell of measurements without their samples, by column, as `SUMMARY_FIELDS` has them."""
    return Columns(_SUMMARIES, (*map(Same, key), series_ids, *summaries), len(series_ids))


def towards_zero(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """In single precision, none larger than it was."""
    with np.errstate(over="ignore", under="ignore"):
        rounded = values.astype(np.float32)
        return np.where(rounded > values, np.nextafter(rounded, np.float32(0)), rounded)


def to_single(value: float | None) -> float | None:
    """The nearest number of single precision; of what is larger than any, the largest."""
    return None if value is None else float(np.float32(min(value, _LARGEST_SINGLE)))


def bound_of(*, is_memory_bound: bool | None) -> Literal["memory", "compute"] | None:
    """The word for what is stored."""
    if is_memory_bound is None:
        return None
    return "memory" if is_memory_bound else "compute"


def _of_timed(values: NDArray[np.floating[Any]], counts: Sequence[int]) -> Column:
    """A value of each measurement that has samples, and None between them for each that has not."""
    if len(values) == len(counts):
        return values
    of_timed = iter(values.tolist())
    return [next(of_timed) if count else None for count in counts]
