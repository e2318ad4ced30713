"""What measurements say, gathered while they say it: their samples in one array, and what is packed with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, compress

import numpy as np
from numpy.typing import NDArray

from roofwatch.collector.record.measurement import Measurement
from roofwatch.db.ingest.samples import make_head, pack
from roofwatch.db.ingest.saying import Facts
from roofwatch.db.ingest.shared_rows import in_utc

_ENOUGH = 1_024
"""Measurements that are stored at once: the next are said while Postgres stores these."""


@dataclass(frozen=True)
class SaidMeasurements:
    """Of measurements that follow each other in a record."""

    begin: int
    """The place of the first in the record."""
    counts: Sequence[int]
    """Samples of each."""
    block_counts: Sequence[int]
    are_degraded: Sequence[bool]
    """Whether the device was held back or shared in some block."""
    joules: Sequence[float | None]
    """Median energy of a launch."""
    hosts_ns: Sequence[float | None]
    """Median time that the host takes to issue a launch."""
    peaks: Sequence[int | None]
    """Bytes that a launch held at most; of what was timed alone: one that failed says nothing of what it takes."""
    samples_ns: NDArray[np.float64]
    """Of one measurement after the other, shape [sum(counts)]."""
    have_more: Sequence[bool]
    """Which have more to tell than their summary."""
    heads: Sequence[bytes]
    """Of these, what is packed before the samples."""

    @property
    def end(self) -> int:
        return self.begin + len(self.counts)

    def pack(self) -> list[bytes]:
        """Their samples, of those that have more to tell, packed; while that is done, other threads run."""
        # those that have no more have no samples
        return pack(self.heads, self.samples_ns, list(compress(self.counts, self.have_more)))


class Gathering:
    """Takes the measurements of a record, so many as it has, one by one."""

    def __init__(self, measurement_count: int) -> None:
        self._measurement_count = measurement_count
        self._begin = 0
        self._clear()

    def take(self, measurement: Measurement, facts: Facts) -> None:
        """Add the next measurement of the record, whose blocks say that."""
        blocks, memory = measurement.blocks, measurement.memory
        samples_ns = [block.samples_ns for block in blocks]
        lengths = list(map(len, samples_ns))
        is_degraded = is_metered = is_hosted = False
        for said in facts:
            is_hosted |= "host_ns" in said
            if (state := said.get("device_state")) is not None:
                is_degraded |= "degraded_by" in state
                is_metered |= "energy_per_launch_j" in state
        self._counts.append(sum(lengths))
        self._block_counts.append(len(lengths))
        self._are_degraded.append(is_degraded)
        # what a property takes is spent only on what was metered
        self._joules.append(measurement.joules_per_launch if is_metered else None)
        self._hosts_ns.append(measurement.host_ns if is_hosted else None)
        self._peaks.append(memory.peak_allocated_bytes if memory is not None and lengths else None)
        self._samples_ns += samples_ns
        has_more = _has_more(measurement)
        self._have_more.append(has_more)
        if has_more:
            self._heads.append(
                make_head(
                    launches_per_sample=measurement.launches_per_sample,
                    memory=memory,
                    autotuning=measurement.autotuning,
                    started_at=[_in_utc(block.started_at) for block in blocks],
                    lengths=lengths,
                    facts=facts,
                )
            )

    @property
    def is_full(self) -> bool:
        """Whether there are enough of them to be given, or none will follow."""
        count = len(self._counts)
        return count >= _ENOUGH or 0 < count == self._measurement_count - self._begin

    def give(self) -> SaidMeasurements:
        """What was taken since the last time."""
        one_by_one = chain.from_iterable(self._samples_ns)
        samples_ns = np.fromiter(one_by_one, dtype=np.float64, count=sum(self._counts))
        given = SaidMeasurements(
            begin=self._begin,
            counts=self._counts,
            block_counts=self._block_counts,
            are_degraded=self._are_degraded,
            joules=self._joules,
            hosts_ns=self._hosts_ns,
            peaks=self._peaks,
            samples_ns=samples_ns,
            have_more=self._have_more,
            heads=self._heads,
        )
        self._begin = given.end
        self._clear()
        return given

    def _clear(self) -> None:
        self._counts: list[int] = []
        self._block_counts: list[int] = []
        self._are_degraded: list[bool] = []
        self._joules: list[float | None] = []
        self._hosts_ns: list[float | None] = []
        self._peaks: list[int | None] = []
        self._samples_ns: list[tuple[float, ...]] = []
        self._have_more: list[bool] = []
        self._heads: list[bytes] = []


def _has_more(measurement: Measurement) -> bool:
    """Whether a field that is packed is not at its default."""
    return bool(
        measurement.blocks
        or measurement.memory is not None
        or measurement.autotuning
        or measurement.launches_per_sample != 1
    )


def _in_utc(time: datetime) -> datetime:
    return time if time.tzinfo == UTC else in_utc(time)
