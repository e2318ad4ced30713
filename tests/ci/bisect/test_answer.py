"""What the pairs say of the change once it is known where it is."""

import numpy as np
import pytest

from roofwatch.ci.bisect.measurements import between_levels, step_size

RNG = np.random.default_rng(3)


def pairs_around(level: float, count: int = 8) -> list[float]:
    return [float(each) for each in RNG.normal(level, 0.005, size=count)]


def test_the_size_of_the_step_is_taken_from_all_commits_that_have_it() -> None:
    log_ratios = [pairs_around(0.0), pairs_around(np.log(1.05)), [], pairs_around(np.log(1.05))]

    found = step_size(log_ratios, 1)

    assert found.block_count == 16
    assert found.relative_change == pytest.approx(0.05, abs=0.005)
    low, high = found.relative_interval
    assert low < 0.05 < high


def test_a_commit_on_neither_level_is_told() -> None:
    step = float(np.log(1.2))
    log_ratios = [pairs_around(0.0), pairs_around(step / 2), pairs_around(step), [0.1]]

    assert [level.position for level in between_levels(log_ratios, step)] == [1]


def test_commits_on_the_two_levels_are_not() -> None:
    log_ratios = [pairs_around(0.0) for _ in range(20)] + [pairs_around(0.1) for _ in range(20)]

    assert between_levels(log_ratios, 0.1) == []
