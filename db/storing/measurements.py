"""Measurements of a record on their way into the store: the summary of each, and its samples, packed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import accumulate, chain, compress, pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from collector.device_state import DeviceState
from collector.measurement import Block, Measurement
from collector.part import Outcome
from collector.record import RunRecord
from db.storing.column_bytes import Column, Same
from db.storing.run_key import RunKey
from db.storing.sample_summary import summarise
from db.storing.samples import make_head, pack
from db.storing.saying import saying_of
from db.storing.series_rows import Identity, Measured
from db.storing.shared_rows import in_utc
from db.storing.staging import Columns, Target
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
SUMMARY_FIELDS = tuple(_VALUES)
"""Columns of what is told of a measurement."""
_SUMMARIES = Target("measurement", _OF_RUN | _VALUES)
_SAMPLE_SETS = Target("sample_set", _OF_RUN | {"content": "bytea"})
_CODES = {outcome: MeasurementRow.outcome.type.words.index(outcome) for outcome in Outcome}
_say_rest = saying_of(Block, without=("started_at", "samples_ns"))
"""What is packed of a block as a document."""
_LARGEST_SINGLE = float(np.finfo(np.float32).max)


class Measurements:
    """Those of a record."""

    def __init__(self, record: RunRecord) -> None:
        self._all = record.measurements
        self._case_places = {case.case_id: place for place, case in enumerate(record.cases)}
        self._have_more = list(map(_has_more, self._all))
        blocks_of_each = [one.blocks for one in self._all]
        block_counts = list(map(len, blocks_of_each))
        blocks = list(map(vars, chain.from_iterable(blocks_of_each)))
        samples_ns = [block["samples_ns"] for block in blocks]
        lengths = list(map(len, samples_ns))
        self._lengths = [lengths[begin:end] for begin, end in pairwise(accumulate(block_counts, initial=0))]
        self._counts = list(map(sum, self._lengths))
        self._samples_ns = np.fromiter(chain.from_iterable(samples_ns), dtype=np.float64, count=sum(lengths))
        # what a property takes is spent only on what was metered
        places = np.repeat(np.arange(len(self._all)), block_counts).tolist()
        states = [block["device_state"] for block in blocks]
        degraded = {place for place, state in zip(places, states, strict=True) if state and state.degraded_by}
        metered = {place for place, state in zip(places, states, strict=True) if _is_metered(state)}
        hosted = {place for place, block in zip(places, blocks, strict=True) if block["host_ns"] is not None}
        self._are_degraded = [place in degraded for place in range(len(self._all))]
        self._joules = [one.joules_per_launch if place in metered else None for place, one in enumerate(self._all)]
        self._hosts_ns = [one.host_ns if place in hosted else None for place, one in enumerate(self._all)]
        # of a time alone: a launch that failed says nothing of what it takes
        self._peaks = [
            one.memory.peak_allocated_bytes if one.memory is not None and one.blocks else None for one in self._all
        ]

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

    def summaries(self, key: RunKey, series_ids: Sequence[int]) -> Columns:
        """A row each."""
        return load_summaries(key, series_ids, self._summaries())

    def packing(self) -> Callable[[], list[bytes]]:
        """What packs the samples of those that have more to tell than their summary; it may run beside the caller."""
        heads = list(map(_head, compress(self._all, self._have_more), compress(self._lengths, self._have_more)))
        # those that have no more have no samples
        return partial(pack, heads, self._samples_ns, list(compress(self._counts, self._have_more)))

    def sample_sets(self, key: RunKey, series_ids: Sequence[int], packed: Sequence[bytes]) -> Columns:
        """What `packing` gave, each with its series."""
        of_sets = list(compress(series_ids, self._have_more))
        return Columns(_SAMPLE_SETS, (*map(Same, key), of_sets, packed), len(packed))

    def _summaries(self) -> list[Column]:
        """By column."""
        summary = summarise(self._samples_ns, [count for count in self._counts if count])
        medians = summary.medians
        # a quartile so small that the difference is the median itself is still above zero
        below = towards_zero(np.minimum(medians - summary.first_quartiles, np.nextafter(medians, 0)))
        above = towards_zero(summary.third_quartiles - medians)
        return [
            [_CODES[one.outcome] for one in self._all],
            [one.message for one in self._all],
            *(self._of_timed(values) for values in (medians, below, above)),
            [count or None for count in self._counts],
            [len(lengths) or None for lengths in self._lengths],
            [one.utilisation for one in self._all],
            self._joules,
            [None if one.bound is None else one.bound == "memory" for one in self._all],
            list(map(to_single, self._hosts_ns)),
            list(map(to_single, self._peaks)),
        ]

    def _of_timed(self, values: NDArray[np.floating[Any]]) -> Column:
        """A value of each measurement that has samples, and None between them for each that has not."""
        if len(values) == len(self._all):
            return values
        of_timed = iter(values.tolist())
        return [next(of_timed) if count else None for count in self._counts]


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


def _has_more(measurement: Measurement) -> bool:
    """Whether a field that is packed is not at its default."""
    return bool(
        measurement.blocks
        or measurement.memory is not None
        or measurement.autotuning
        or measurement.launches_per_sample != 1
    )


def _head(measurement: Measurement, lengths: Sequence[int]) -> bytes:
    return make_head(
        launches_per_sample=measurement.launches_per_sample,
        memory=measurement.memory,
        autotuning=measurement.autotuning,
        started_at=[_in_utc(block.started_at) for block in measurement.blocks],
        lengths=lengths,
        facts=[_say_rest(block) for block in measurement.blocks],
    )


def _is_metered(state: DeviceState | None) -> bool:
    return state is not None and state.energy_per_launch_j is not None


def _in_utc(time: datetime) -> datetime:
    return time if time.tzinfo == UTC else in_utc(time)
