"""Builders of small histories, pairs and records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import numpy as np

from roofwatch.ci.causes.evidence import SupportingEvidence
from roofwatch.ci.history.history import analyse_series
from roofwatch.model.history import Pair, Regression, Series, SeriesPoint
from roofwatch.model.machine import DeviceState, Outcome
from roofwatch.model.measurement import AutotuneTiming, Autotuning, Measurement
from roofwatch.model.record import PairMember, RunRecord, Side
from roofwatch.model.results import Accuracy, Counters, StaticFacts
from tests.builders import (
    CASE_ID,
    NOON,
    PROJECT,
    code_hash_of,
    make_blocks,
    make_commit_ref,
    make_environment,
    make_measurement,
    make_pair_of_records,
    make_record,
    make_series_key,
)

SOFTMAX = "softmax/n_rows=64,n_cols=128/float32/fwd"
SWIGLU = "swiglu/n_rows=64,n_cols=128/float32/fwd"
RUNNER_CLASS = make_environment().runner_class


def make_point(number: int, value: float | None, *, run: int = 0, **fields: Any) -> SeriesPoint:
    """One measured value of the numbered commit; None is an incorrect result."""
    defaults: dict[str, Any] = {
        "commit": make_commit_ref(number),
        "run_id": f"run {number}.{run}",
        "measured_at": NOON + timedelta(hours=number, minutes=run),
        "outcome": Outcome.INCORRECT if value is None else Outcome.OK,
        "value": value,
    }
    return SeriesPoint(**defaults | fields)


def make_series(
    values: Iterable[float | Outcome | None], metric: str = "median_ns", **key: Any
) -> Series:
    """One value per commit; an outcome stands for a failed run."""
    points = [
        make_point(number, None, outcome=value)
        if isinstance(value, Outcome)
        else make_point(number, value)
        for number, value in enumerate(values)
    ]
    return Series(make_series_key(metric, **key), tuple(points))


def make_static_series(
    metric: str, values: Sequence[float | None], codes: str, **key: Any
) -> Series:
    """A compiled fact per commit; `codes` has a letter per commit, equal letters being equal
    machine code. None is a compile error.
    """
    defaults = {
        "implementation": "triton",
        "runner_class": "",
        "function": "_kernel",
        "target": "sm_90",
    }
    points = [
        make_point(number, None, outcome=Outcome.COMPILE_ERROR, message="out of registers")
        if value is None
        else make_point(number, value, code_hash=code_hash_of(code))
        for number, (value, code) in enumerate(zip(values, codes, strict=True))
    ]
    return Series(make_series_key(metric, **defaults | key), tuple(points))


def judge_history(series: Iterable[Series], pairs: Sequence[Pair] = ()) -> list[Regression]:
    """Analyse some series with paired measurements."""
    return analyse_series(series, SupportingEvidence(pairs)).regressions()


def only(regressions: Sequence[Regression]) -> Regression:
    """Return the only regression."""
    assert len(regressions) == 1, [regression.summary for regression in regressions]
    return regressions[0]


def stepped(
    *,
    count: int = 16,
    at: int = 8,
    factor: float = 1.4,
    noise: float = 0.01,
    seed: int = 0,
    level_ns: float = 1e6,
) -> list[float]:
    """Times with a step at a commit."""
    values = level_ns * np.exp(np.random.default_rng(seed).normal(0, noise, size=count))
    values[at:] *= factor
    return [float(value) for value in values]


def make_pair(
    base: int,
    head: int,
    *,
    factor: float = 1.0,
    noise: float = 0.005,
    block_count: int = 8,
    **fields: Any,
) -> Pair:
    """Two numbered commits measured side by side, the head slower by a factor."""
    rng = np.random.default_rng(base * 100 + head)

    def blocks(median_ns: float) -> tuple[tuple[float, ...], ...]:
        levels = median_ns * np.exp(rng.normal(0, noise, size=block_count))
        return tuple((float(level * 0.999), float(level), float(level * 1.001)) for level in levels)

    defaults: dict[str, Any] = {
        "project": PROJECT,
        "pair_id": f"{base} {head}",
        "base": make_commit_ref(base),
        "head": make_commit_ref(head),
        "case_id": CASE_ID,
        "implementation": "torch",
        "runner_class": RUNNER_CLASS,
        "measured_at": NOON + timedelta(hours=head),
        "base_blocks_ns": blocks(1e6),
        "head_blocks_ns": blocks(1e6 * factor),
    }
    return Pair(**defaults | fields)


def make_noisy_calibration() -> tuple[RunRecord, RunRecord]:
    """Records of commit 0 against itself, in noise of 15 % between blocks."""
    base, head = make_pair_of_records(0, 0)
    levels_ns = (
        10_000.0 * np.exp(0.15 * np.random.default_rng(1).standard_normal((2, 12)))
    ).tolist()
    there, here = (make_measurement(blocks=make_blocks(side)) for side in levels_ns)
    return base.model_copy(update={"measurements": (there,)}), head.model_copy(
        update={"measurements": (here,)}
    )


Result = Measurement | Accuracy | StaticFacts
PAIR_ID = UUID("00000000-0000-4000-8000-000000000001")
QUIET = (1.0, 1.004, 0.997, 1.002, 0.999, 1.001)
"""Levels of blocks in noise of about 0.3 %."""
LOUD = (1.0, 1.3, 0.8, 1.1, 0.7, 1.2)


def make_timed(
    case_id: str = CASE_ID,
    *,
    median_ns: float = 1e6,
    levels: Sequence[float] = QUIET,
    **fields: Any,
) -> Measurement:
    """A measurement in one block per level."""
    return make_measurement(
        case_id, blocks=make_blocks([median_ns * level for level in levels]), **fields
    )


def make_records(
    base: Sequence[Result],
    head: Sequence[Result],
    *,
    is_paired: bool = True,
    base_fields: dict[str, Any] | None = None,
    head_fields: dict[str, Any] | None = None,
) -> tuple[RunRecord, RunRecord]:
    """Records of commits 0 and 1 with these results, by default of one job and of one source."""

    def one_side(
        number: int, side: Side, results: Sequence[Result], fields: dict[str, Any]
    ) -> RunRecord:
        return make_record(
            number,
            measurements=[result for result in results if isinstance(result, Measurement)],
            accuracies=[result for result in results if isinstance(result, Accuracy)],
            static_facts=[result for result in results if isinstance(result, StaticFacts)],
            **{
                "pairing": PairMember(pair_id=PAIR_ID, side=side) if is_paired else None,
                "source_digests": {result.case_id.partition("/")[0]: "a" for result in results},
            }
            | fields,
        )

    return (
        one_side(0, Side.BASE, base, base_fields or {}),
        one_side(1, Side.HEAD, head, head_fields or {}),
    )


def watched(
    measured: Measurement,
    *,
    sm_clock_mhz: float | None = 1_980,
    degraded: Mapping[int, tuple[str, ...]] | None = None,
) -> Measurement:
    """Add the state of the device: one clock for all blocks, and what degraded them by position."""
    reasons = degraded or {}
    blocks = tuple(
        block.model_copy(
            update={
                "device_state": DeviceState(
                    reading_count=3,
                    sm_clock_mhz=sm_clock_mhz,
                    degraded_by=reasons.get(position, ()),
                )
            }
        )
        for position, block in enumerate(measured.blocks)
    )
    return measured.model_copy(update={"blocks": blocks})


def make_choice(
    block: int, *, times_us: Mapping[int, float] | None = None, **fields: Any
) -> Autotuning:
    """The autotuner's choice of a block size, with the times that it measured."""
    defaults: dict[str, Any] = {
        "function": "_kernel",
        "key": "4096, torch.float32",
        "chosen": {"BLOCK": block, "num_warps": 4},
        "timings": tuple(
            AutotuneTiming(configuration={"BLOCK": tried, "num_warps": 4}, time_ns=time_us * 1e3)
            for tried, time_us in (times_us or {}).items()
        ),
    }
    return Autotuning(**defaults | fields)


def make_counters(**fields: Any) -> Counters:
    defaults: dict[str, Any] = {
        "case_id": CASE_ID,
        "implementation": "torch",
        "function": "_kernel",
    }
    return Counters(**defaults | fields)
