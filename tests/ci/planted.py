"""A synthetic history of many series with planted causes, in noise as of GPU kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from roofwatch.model.history import (
    CommitRef,
    Regression,
    RunSetting,
    Series,
    SeriesKey,
    SeriesPoint,
)
from roofwatch.model.machine import Outcome
from roofwatch.model.verdict import Verdict
from tests.builders import NOON, make_commit_ref, make_series_key

_KERNELS = (
    "attention",
    "conv2d",
    "gelu",
    "layer_norm",
    "matmul",
    "moe",
    "quantize",
    "rms_norm",
    "rope",
    "softmax",
)
_DTYPES = ("bfloat16", "float32")
_IMPLEMENTATIONS = ("compile", "cudnn", "torch", "triton", "tuned")
_LENGTHS = (512, 1024, 2048, 4096, 8192)
_OLD = RunSetting("1", driver_version="570.86", toolchain=(("triton", "3.7.1"),))
_NEW = RunSetting("1", driver_version="570.124", toolchain=(("triton", "3.7.1"),))
_LEAST_SHARE = 0.5
"""Share of a cause's series that a regression needs to count as found."""


@dataclass(frozen=True)
class Planted:
    """One cause: the series that it changes, its commit and its factor."""

    name: str
    commit: int
    series: frozenset[SeriesKey]
    log_ratio: float
    is_driver: bool = False


@dataclass(frozen=True)
class PlantedHistory:
    series: list[Series]
    causes: list[Planted]


@dataclass(frozen=True)
class Score:
    """How many planted causes were reported."""

    found: int
    """Causes reported as exactly one regression."""
    cause_count: int
    extra: list[Regression]
    """Regressions without a cause, and further ones of a cause."""


def plant(
    seed: int,
    *,
    shape_count: int = 5,
    commit_count: int = 300,
    single_count: int = 5,
    family_count: int = 6,
) -> PlantedHistory:
    """Make a history of 100 series for each shape, with a driver event and causes of single series
    and of families.

    Each series has noise of 0.5 to 2.5 %, heavy tails, an outlier in fifty values and some
    autocorrelation. All series of a run share a shift of 0.4 %. A cause changes its series by 8 to
    40 % in either direction, with factors that differ by a tenth. The driver changes all series by
    6 to 12 %, with factors that differ by a third.
    """
    rng = np.random.default_rng(seed)
    keys = [
        make_series_key(case_id=f"{kernel}/n={length}/{dtype}/fwd", implementation=implementation)
        for kernel in _KERNELS
        for length in _LENGTHS[:shape_count]
        for dtype in _DTYPES
        for implementation in _IMPLEMENTATIONS
    ]
    causes = _causes(rng, keys, commit_count, single_count, family_count)
    deviations = np.exp(rng.uniform(np.log(0.005), np.log(0.025), len(keys)))
    shared = rng.normal(0, 0.004, commit_count)
    commits = [make_commit_ref(number) for number in range(commit_count)]
    driver_at = next((cause.commit for cause in causes if cause.is_driver), commit_count)
    series = []
    for key, deviation in zip(keys, deviations, strict=True):
        log_values = shared + _noise(rng, commit_count, deviation)
        for cause in causes:
            if key in cause.series:
                log_values[cause.commit :] += cause.log_ratio * rng.normal(
                    1, 0.35 if cause.is_driver else 0.1
                )
        level_ns = np.exp(rng.uniform(np.log(1e4), np.log(1e7)))
        series.append(
            Series(key, _points(commits, level_ns * np.exp(log_values), deviation, driver_at))
        )
    return PlantedHistory(series, causes)


def _causes(
    rng: np.random.Generator,
    keys: Sequence[SeriesKey],
    commit_count: int,
    single_count: int,
    family_count: int,
) -> list[Planted]:
    count = single_count + family_count + 1
    margin = 12
    # at least three commits apart: two causes in one place cannot be told apart by times
    places = (
        np.sort(rng.choice((commit_count - 2 * margin) // 3, count, replace=False)) * 3 + margin
    )
    rng.shuffle(places)
    families = _families(rng)
    causes = [
        Planted(
            "driver",
            int(places[0]),
            frozenset(keys),
            float(np.log1p(rng.uniform(0.06, 0.12))),
            is_driver=True,
        )
    ]
    for number in range(single_count):
        key = keys[int(rng.integers(len(keys)))]
        causes.append(
            Planted(f"single {number}", int(places[1 + number]), frozenset([key]), _log_factor(rng))
        )
    for number in range(family_count):
        name, belongs = families[number % len(families)]
        members = frozenset(key for key in keys if belongs(key))
        causes.append(
            Planted(name, int(places[1 + single_count + number]), members, _log_factor(rng))
        )
    return causes


def _families(rng: np.random.Generator) -> list[tuple[str, Callable[[SeriesKey], bool]]]:
    first, second, third, fourth = rng.choice(_KERNELS, 4, replace=False)
    dtype, implementation = str(rng.choice(_DTYPES)), str(rng.choice(_IMPLEMENTATIONS))
    return [
        (f"all of {first}", lambda key: key.kernel == first),
        (f"{dtype} of {second}", lambda key: key.kernel == second and dtype in key.case_id),
        (
            f"{implementation} of {third}",
            lambda key: key.kernel == third and key.implementation == implementation,
        ),
        (
            f"{dtype} {implementation} of {fourth}",
            lambda key: (
                key.kernel == fourth
                and dtype in key.case_id
                and key.implementation == implementation
            ),
        ),
        (
            "triton of attention and matmul",
            lambda key: key.kernel in {"attention", "matmul"} and key.implementation == "triton",
        ),
        (
            "tuned bfloat16 of every kernel",
            lambda key: key.implementation == "tuned" and "bfloat16" in key.case_id,
        ),
    ]


def _log_factor(rng: np.random.Generator) -> float:
    return float(np.log1p(np.exp(rng.uniform(np.log(0.08), np.log(0.4))))) * float(
        rng.choice([-1, 1])
    )


def _noise(rng: np.random.Generator, count: int, deviation: float) -> NDArray[np.float64]:
    steps = rng.standard_t(5, count) / np.sqrt(5 / 3) * deviation
    correlation = rng.uniform(0, 0.3)
    values = np.empty(count)
    last = 0.0
    for index, step in enumerate(steps):
        last = correlation * last + np.sqrt(1 - correlation**2) * step
        values[index] = last
    outliers = rng.random(count) < 0.02
    values[outliers] += rng.uniform(0.1, 0.5, int(outliers.sum()))
    return values


def _points(
    commits: Sequence[CommitRef], values: NDArray[np.float64], deviation: float, driver_at: int
) -> tuple[SeriesPoint, ...]:
    return tuple(
        SeriesPoint(
            commit=commit,
            run_id=commit.sha,
            measured_at=NOON + timedelta(days=number),
            outcome=Outcome.OK,
            value=float(value),
            low=float(value * (1 - deviation)),
            high=float(value * (1 + deviation)),
            block_count=5,
            setting=_OLD if number < driver_at else _NEW,
        )
        for number, (commit, value) in enumerate(zip(commits, values, strict=True))
    )


def score(history: PlantedHistory, regressions: Sequence[Regression]) -> Score:
    """Match regressions to causes: most of their series, within two commits, and the same
    direction.
    """
    matches: dict[str, list[Regression]] = {cause.name: [] for cause in history.causes}
    extra = []
    for regression in regressions:
        cause = next((cause for cause in history.causes if _is_of(regression, cause)), None)
        if cause is None:
            extra.append(regression)
        else:
            matches[cause.name].append(regression)
    extra += [regression for of_cause in matches.values() for regression in of_cause[1:]]
    found = sum(
        len(matches[cause.name]) == 1
        and len({change.series for change in matches[cause.name][0].change_points})
        >= _LEAST_SHARE * len(cause.series)
        for cause in history.causes
    )
    return Score(found, len(history.causes), extra)


def _is_of(regression: Regression, cause: Planted) -> bool:
    way = Verdict.REGRESSED if cause.log_ratio > 0 else Verdict.IMPROVED
    moved = {change.series for change in regression.change_points}
    return (
        regression.verdict is way
        and abs(regression.commit.first_parent_count - 1 - cause.commit) <= 2
        and 2 * len(moved & cause.series) >= len(moved)
    )
