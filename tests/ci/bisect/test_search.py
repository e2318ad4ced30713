"""Probabilistic bisection, and the pairs that it measures."""

import math
from dataclasses import replace

import numpy as np
import pytest

from roofwatch.ci.bisect.pairs import (
    between_levels,
    range_of,
    read_pair,
    series_to_bisect,
    step_size,
)
from roofwatch.ci.bisect.priors import (
    SAME_CODE,
    SAME_CODE_WEIGHT,
    SAME_SOURCES,
    BuildInputs,
    prior_weights,
)
from roofwatch.ci.bisect.search import SearchEnd, SearchPlan, change_probabilities
from roofwatch.model.history import Series
from roofwatch.model.machine import DeviceState, Outcome
from roofwatch.model.measurement import Timer
from roofwatch.model.record import RunRecord
from roofwatch.model.triage import BisectionState
from tests.builders import (
    CASE_ID,
    NOON,
    PROJECT,
    make_accuracy,
    make_blocks,
    make_change_point,
    make_measurement,
    make_record,
    make_regression,
    make_series_key,
    sha_of,
)
from tests.ci.simulated_bisection import PLAIN_SAMPLES, Machine, Scenario, finish, search
from tests.ci.values import make_point


def searched(
    change: int,
    weights: list[float],
    *,
    unmeasurable: tuple[int, ...] = (),
    noise: float = 0.01,
    seed: int = 1,
    plan: SearchPlan | None = None,
) -> tuple[SearchEnd, list[list[float]]]:
    """Search a history of a step of 3 %; the bad end is measured first."""
    machine = Machine(Scenario(commit_count=len(weights), noise=noise), seed)
    machine.change = change
    pairs: list[list[float]] = [[] for _ in weights]
    pairs[-1] = [machine.pair(len(weights) - 1) for _ in range(8)]
    return finish(machine, weights, pairs, plan or SearchPlan(), unmeasurable), pairs


def test_three_percent_in_one_percent_noise_take_less_than_half_of_what_a_plain_bisection_takes() -> (
    None
):
    scenario = Scenario()

    found = [search(scenario, seed) for seed in range(20)]

    assert np.mean([trial.is_right for trial in found]) >= 0.95
    assert np.mean([trial.measurement_count for trial in found]) < PLAIN_SAMPLES * math.log2(
        scenario.commit_count
    )


def test_commits_of_weight_zero_are_not_measured() -> None:
    weights = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]

    named, pairs = searched(change=3, weights=weights)

    assert (named.first, named.last) == (3, 3)
    measured = {position for position, of_commit in enumerate(pairs) if of_commit}
    assert len(measured & {0, 1, 2}) == 1, "any of them speaks for all"
    assert not measured & {4, 5, 6}


@pytest.mark.parametrize("change", [3, 4, 5])
def test_commits_that_cannot_be_measured_are_named_together_with_the_first_that_can(
    change: int,
) -> None:
    named, _ = searched(change=change, weights=[1.0] * 10, unmeasurable=(3, 4))

    assert (named.first, named.last) == (3, 5)


def test_a_commit_is_named_only_beside_a_measured_one() -> None:
    for change in range(12):
        _, pairs = searched(change=change, weights=[1.0] * 12, seed=change)

        assert len(pairs[change]) >= 2
        assert change == 0 or len(pairs[change - 1]) >= 2


def test_too_much_noise_leaves_the_result_undecided() -> None:
    plan = SearchPlan(max_pairs=10)

    ends = [
        searched(change=5, weights=[1.0] * 12, noise=0.2, seed=seed, plan=plan)[0]
        for seed in range(4)
    ]

    assert [end.state for end in ends] == [BisectionState.UNDECIDED] * 4


def test_probabilities_agree_with_a_sum_written_out_for_normal_noise_of_a_known_size() -> None:
    rng = np.random.default_rng(5)
    pairs = [list(rng.normal(0.03 * (place >= 2), 0.01, size=40)) for place in range(4)]

    found = change_probabilities([1.0] * 4, pairs)

    log_likelihoods = [
        sum(
            -(((pair - (0.03 if place >= change else 0.0)) / 0.01) ** 2) / 2
            for place, of_commit in enumerate(pairs)
            for pair in of_commit
        )
        for change in range(4)
    ]
    shares = np.exp(np.array(log_likelihoods) - max(log_likelihoods))
    assert found == pytest.approx(shares / shares.sum(), abs=0.01)
    assert found.sum() == pytest.approx(1)


def test_one_outlier_does_not_decide() -> None:
    bad_end = [0.030, 0.031, 0.029, 0.030, 0.032, 0.028, 0.031, 0.030]

    calm = change_probabilities([1.0, 1.0], [[0.0, 0.001, -0.001], bad_end])
    wild = change_probabilities([1.0, 1.0], [[0.0, 0.001, -0.001, 0.5], bad_end])

    assert calm[1] > 0.999
    assert wild[1] > 0.99


BROKEN = BuildInputs(error="does not import")


def test_a_commit_weighs_less_the_more_it_leaves_identical() -> None:
    inputs = [
        BuildInputs("a", "x"),
        BuildInputs("a", "x"),
        BuildInputs("b", "x"),
        BuildInputs("c", "y"),
    ]

    weights = prior_weights(inputs)

    assert [weight.value for weight in weights] == [0, SAME_CODE_WEIGHT, 1]
    assert [weight.reason for weight in weights] == [SAME_SOURCES, SAME_CODE, ""]


@pytest.mark.parametrize(("after", "weights"), [("a", [0, 0, 0]), ("b", [1, 1, 1])])
def test_commits_that_cannot_be_loaded_weigh_as_the_next_one_that_can(
    after: str, weights: list[float]
) -> None:
    inputs = [BuildInputs("a"), BROKEN, BROKEN, BuildInputs(after), BuildInputs("z")]

    assert [one.value for one in prior_weights(inputs)] == [*weights, 1]


@pytest.mark.parametrize("inputs", [[BuildInputs(), BuildInputs(), BROKEN], [BuildInputs("a")] * 3])
def test_sources_that_tell_nothing_exclude_nothing(inputs: list[BuildInputs]) -> None:
    assert [one.value for one in prior_weights(inputs)] == [1, 1]


RNG = np.random.default_rng(3)


def pairs_around(level: float) -> list[float]:
    return [float(each) for each in RNG.normal(level, 0.005, size=8)]


def test_the_size_of_the_step_is_taken_from_all_commits_that_have_it() -> None:
    log_ratios = [pairs_around(0.0), pairs_around(np.log(1.05)), [], pairs_around(np.log(1.05))]

    found = step_size(log_ratios, 1)

    assert found.block_count == 16
    assert found.relative_change == pytest.approx(0.05, abs=0.005)
    low, high = found.relative_interval
    assert low < 0.05 < high


def test_only_a_commit_at_neither_level_is_found() -> None:
    step = float(np.log(1.2))
    log_ratios = [pairs_around(0.0), pairs_around(step / 2), pairs_around(step), [0.1]]

    assert between_levels(log_ratios, step) == [1]
    assert (
        between_levels(
            [pairs_around(0.0) for _ in range(20)] + [pairs_around(0.1) for _ in range(20)], 0.1
        )
        == []
    )


def test_a_throttled_pair_of_blocks_gives_no_ratio() -> None:
    blocks = make_blocks([100.0, 200.0, 100.0])
    throttled = blocks[1].model_copy(
        update={"device_state": DeviceState(reading_count=3, degraded_by=("thermal",))}
    )
    good = make_record(0, measurements=[make_measurement(blocks=make_blocks([100.0, 200.0, 50.0]))])
    commit = make_record(
        1, measurements=[make_measurement(blocks=(blocks[0], throttled, blocks[2]))]
    )

    found = read_pair(good, commit, CASE_ID, "torch")

    assert found.log_ratios == pytest.approx([0.0, math.log(2.0)], abs=1e-3)
    assert (found.block_count, found.error) == (3, "")


@pytest.mark.parametrize(
    ("commit", "implementation", "error"),
    [
        (
            make_record(
                1, accuracies=[make_accuracy(outcome=Outcome.INCORRECT, message="off by 3")]
            ),
            "torch",
            "off by 3",
        ),
        (make_record(1), "triton", "was not measured"),
        (
            make_record(1, measurements=[make_measurement(timer=Timer.CUDA_GRAPH)]),
            "torch",
            "cupti and cuda_graph",
        ),
    ],
)
def test_a_commit_that_cannot_be_compared_has_a_reason(
    commit: RunRecord, implementation: str, error: str
) -> None:
    good = make_record(0, measurements=[make_measurement(timer=Timer.CUPTI)])

    found = read_pair(good, commit, CASE_ID, implementation)

    assert found.log_ratios == ()
    assert error in found.error


def test_the_largest_step_of_a_time_is_bisected_between_its_commits() -> None:
    little = make_change_point(5, after=11_000.0, series=make_series_key(implementation="torch"))
    most = make_change_point(5, after=15_000.0, series=make_series_key(implementation="triton"))
    static = make_change_point(
        5, after=99_000.0, series=make_series_key("registers", implementation="triton")
    )
    regression = make_regression(5, change_points=(little, most, static))

    point = series_to_bisect(regression)

    assert point == most
    commit_range = range_of(PROJECT, point, [])
    assert commit_range.implementation == "triton"
    assert (commit_range.good_sha, commit_range.bad_sha) == (sha_of(4), sha_of(5))
    assert commit_range.runner_class == most.series.runner_class


def test_with_the_series_the_range_includes_two_more_measured_commits() -> None:
    points = tuple(
        make_point(number, 10_000.0, measured_at=NOON) for number in (0, 1, 3, 4, 5, 8, 9, 10)
    )
    failed = replace(points[2], value=None, outcome=Outcome.CRASHED)
    series = Series(make_series_key(), (*points[:2], failed, *points[3:]))

    commit_range = range_of(PROJECT, make_change_point(5), [series])

    assert (commit_range.good_sha, commit_range.bad_sha) == (sha_of(0), sha_of(9))


def test_without_a_step_of_a_time_there_is_nothing_to_bisect() -> None:
    static = make_change_point(5, series=make_series_key("registers"))
    drift = make_change_point(5, is_gradual=True)
    broken = make_change_point(5, after=None)
    regression = make_regression(5, change_points=(static, drift, broken))

    assert series_to_bisect(regression) is None
