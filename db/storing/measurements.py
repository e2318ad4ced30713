"""Measurements of a record on their way into the store: the summary of each, and its samples, packed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import chain, compress
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from collector.device_state import DeviceState
from collector.part import Outcome
from collector.record import RunRecord
from db.storing.run_key import RunKey
from db.storing.sample_summary import summarise
from db.storing.samples import make_head, pack
from db.storing.series_rows import Identity, Measured
from db.storing.shared_rows import in_utc
from db.storing.staging import Load, Target
from db.tables.records import MeasurementRow

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
_SUMMARIES = Target("measurement", _OF_RUN | _VALUES)
_SAMPLE_SETS = Target("sample_set", _OF_RUN | {"content": "bytea"})
_CODES = {outcome: MeasurementRow.outcome.type.words.index(outcome) for outcome in Outcome}
_MORE = {"blocks", "memory", "autotuning", "launches_per_sample"}
"""Fields that are packed, where they are not at their defaults."""
_LARGEST_SINGLE = float(np.finfo(np.float32).max)


class Measurements:
    """Those of a record."""

    def __init__(self, record: RunRecord) -> None:
        self._all = record.measurements
        self._case_places = {case.case_id: place for place, case in enumerate(record.cases)}
        self._lengths = [[len(block.samples_ns) for block in one.blocks] for one in self._all]
        self._counts = [sum(lengths) for lengths in self._lengths]
        states = [[block.device_state for block in one.blocks] for one in self._all]
        self._are_degraded = [any(state and state.degraded_by for state in some) for some in states]
        # what a property takes is spent only on what was metered
        self._joules = [
            one.joules_per_launch if any(map(_is_metered, some)) else None
            for one, some in zip(self._all, states, strict=True)
        ]
        self._hosts_ns = [
            one.host_ns if any(block.host_ns is not None for block in one.blocks) else None for one in self._all
        ]
        # of a time alone: a launch that failed says nothing of what it takes
        self._peaks = [
            one.memory.peak_allocated_bytes if one.memory is not None and one.blocks else None for one in self._all
        ]
        of_blocks = (block.samples_ns for one in self._all for block in one.blocks)
        self._samples_ns = np.fromiter(chain.from_iterable(of_blocks), dtype=np.float64, count=sum(self._counts))

    def series(self, version_ids: Sequence[int]) -> list[Measured]:
        """Of each the series, by the ids of what is said of the record's cases."""
        return [
            Measured(
                Identity(version_ids[self._case_places[one.case_id]], one.implementation, one.timer, one.cache),
                has_utilisation=one.utilisation is not None,
                has_energy=joules is not None,
                has_host_time=host_ns is not None,
                has_memory=peak is not None,
            )
            for one, joules, host_ns, peak in zip(self._all, self._joules, self._hosts_ns, self._peaks, strict=True)
        ]

    def launch_counts(self) -> list[int]:
        """Launches that were timed."""
        return [count * one.launches_per_sample for count, one in zip(self._counts, self._all, strict=True)]

    def are_degraded(self) -> list[bool]:
        """Whether the device was held back or shared in some block."""
        return self._are_degraded

    def summaries(self, key: RunKey, series_ids: Sequence[int]) -> Load:
        """A row each."""
        return load_summaries(key, series_ids, self._summaries())

    def packing(self, documents: Sequence[dict[str, Any]]) -> Callable[[], list[bytes]]:
        """What packs the samples of those that have more to tell than their summary, beside other work of the caller.

        Args:
            documents: The measurements as the record says them. They are taken apart.
        """
        have_more = [not _MORE.isdisjoint(document) for document in documents]
        heads = list(map(_head, compress(documents, have_more), compress(self._lengths, have_more)))
        # those that have no more have no samples
        return partial(pack, heads, self._samples_ns, list(compress(self._counts, have_more)))

    def sample_sets(
        self, key: RunKey, series_ids: Sequence[int], documents: Sequence[dict[str, Any]], packed: Iterable[bytes]
    ) -> Load:
        """What `packing` gave, each with its series."""
        of_sets = compress(series_ids, (not _MORE.isdisjoint(document) for document in documents))
        rows = ((*key, series_id, content) for series_id, content in zip(of_sets, packed, strict=True))
        return Load(_SAMPLE_SETS, rows)

    def _summaries(self) -> Iterator[tuple[object, ...]]:
        summary = summarise(self._samples_ns, [count for count in self._counts if count])
        medians = summary.medians
        # a quartile so small that the difference is the median itself is still above zero
        below = towards_zero(np.minimum(medians - summary.first_quartiles, np.nextafter(medians, 0)))
        above = towards_zero(summary.third_quartiles - medians)
        times = zip(medians.tolist(), below.tolist(), above.tolist(), strict=True)
        beside = zip(self._joules, map(to_single, self._hosts_ns), map(to_single, self._peaks), strict=True)
        for one, count, (joules, host_ns, peak) in zip(self._all, self._counts, beside, strict=True):
            yield (
                _CODES[one.outcome],
                one.message,
                *(next(times) if count else (None, None, None)),
                count or None,
                len(one.blocks) or None,
                one.utilisation,
                joules,
                None if one.bound is None else one.bound == "memory",
                host_ns,
                peak,
            )


def load_summaries(key: RunKey, series_ids: Sequence[int], summaries: Iterable[Sequence[object]]) -> Load:
    """What there is to tell of measurements without their samples, each as `summary_values` has it."""
    rows = ((*key, series_id, *values) for series_id, values in zip(series_ids, summaries, strict=True))
    return Load(_SUMMARIES, rows)


def summary_values(row: Mapping[str, object]) -> list[object]:
    """The values of a summary by the names of the columns, in order; None for what is not there."""
    return [row.get(name) for name in _VALUES]


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


def _head(document: dict[str, Any], lengths: Sequence[int]) -> bytes:
    blocks = document.get("blocks", ())
    for block in blocks:
        del block["samples_ns"]
    return make_head(
        launches_per_sample=document.get("launches_per_sample", 1),
        memory=document.get("memory"),
        autotuning=document.get("autotuning", []),
        started_at=[_in_utc(block.pop("started_at")) for block in blocks],
        lengths=lengths,
        facts=blocks,  # what is left of them
    )


def _is_metered(state: DeviceState | None) -> bool:
    return state is not None and state.energy_per_launch_j is not None


def _in_utc(time: datetime) -> datetime:
    return time if time.tzinfo == UTC else in_utc(time)
