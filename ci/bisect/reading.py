"""What a pair of records says to a bisection: the pairs of blocks of one series, or why there are none. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from roofwatch.ci.ab.clock import block_pairs
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.measurement import Measurement
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.record.results import Accuracy


@dataclass(frozen=True)
class Reading:
    """One commit against the good end."""

    log_ratios: tuple[float, ...]
    """ln(commit / good) of the block medians, of each pair that counts."""
    block_count: int
    """Taken on each side; those that were taken while the device was held back or shared give no ratio."""
    trouble: str = ""
    """Why the commit cannot be measured; empty where it can."""


def read_pair(good: RunRecord, commit: RunRecord, case_id: str, implementation: str) -> Reading:
    """Read one series of two records that were measured as a pair, the good end first."""
    there, here = _measured(good, case_id, implementation), _measured(commit, case_id, implementation)
    trouble = _trouble(commit, case_id, implementation) or _differing(there, here)
    if trouble or there is None or here is None:
        return Reading((), 0, trouble or f"{case_id} {implementation} is not there")
    pairs = block_pairs(there, here)
    log_ratios = tuple(
        float(np.median(np.log(block.samples_ns)) - np.median(np.log(base.samples_ns)))
        for base, block in zip(pairs.base, pairs.head, strict=True)
    )
    return Reading(log_ratios, len(here.blocks))


def _measured(record: RunRecord, case_id: str, implementation: str) -> Measurement | None:
    keyed = {(each.case_id, each.implementation): each for each in record.measurements}
    return keyed.get((case_id, implementation))


def _trouble(record: RunRecord, case_id: str, implementation: str) -> str:
    results: list[Accuracy | Measurement] = [*record.accuracies, *record.measurements]
    of_series = [each for each in results if (each.case_id, each.implementation) == (case_id, implementation)]
    failed = next((each for each in of_series if each.outcome is not Outcome.OK), None)
    return "" if failed is None else f"{failed.outcome}: {failed.message or 'no reason is known'}"


def _differing(there: Measurement | None, here: Measurement | None) -> str:
    """Why two times that are both there do not compare."""
    if there is None or here is None:
        return ""
    if (there.timer, there.cache) != (here.timer, here.cache):
        return f"timed by {here.timer} with a {here.cache} cache, the good end by {there.timer} with {there.cache}"
    if there.is_hidden_by_host or here.is_hidden_by_host:
        return f"{here.timer} times hold what the device waits for its host: --timer cupti counts the device alone"
    return ""
