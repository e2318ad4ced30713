"""Probabilistic bisection."""

import math

import numpy as np
import pytest

from roofwatch.ci.bisect.search import (
    SAME_CODE,
    SAME_CODE_WEIGHT,
    SAME_SOURCES,
    BuildInputs,
    Result,
    SearchPlan,
    change_probabilities,
    prior_weights,
)
from roofwatch.db.values import BisectionState
from tests.ci.simulated_bisection import PLAIN_SAMPLES, Machine, Scenario, finish, search


def searched(
    change: int,
    weights: list[float],
    *,
    unmeasurable: tuple[int, ...] = (),
    noise: float = 0.01,
    seed: int = 1,
    plan: SearchPlan | None = None,
) -> tuple[Result, list[list[float]]]:
    """Search a history of a step of 3 %; the bad end is measured first."""
    machine = Machine(Scenario(commit_count=len(weights), noise=noise), seed)
    machine.change = change
    pairs: list[list[float]] = [[] for _ in weights]
    pairs[-1] = [machine.pair(len(weights) - 1) for _ in range(8)]
    return finish(machine, weights, pairs, plan or SearchPlan(), unmeasurable), pairs


def test_three_percent_in_one_percent_noise_take_less_than_half_of_what_a_plain_bisection_takes() -> None:
    scenario = Scenario()

    found = [search(scenario, seed) for seed in range(20)]

    assert np.mean([trial.is_right for trial in found]) >= 0.95
    assert np.mean([trial.measurement_count for trial in found]) < PLAIN_SAMPLES * math.log2(scenario.commit_count)


def test_commits_of_weight_zero_are_not_measured() -> None:
    weights = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]

    named, pairs = searched(change=3, weights=weights)

    assert (named.first, named.last) == (3, 3)
    measured = {position for position, of_commit in enumerate(pairs) if of_commit}
    assert len(measured & {0, 1, 2}) == 1, "any of them speaks for all"
    assert not measured & {4, 5, 6}


@pytest.mark.parametrize("change", [3, 4, 5])
def test_commits_that_cannot_be_measured_are_named_together_with_the_first_that_can(change: int) -> None:
    named, _ = searched(change=change, weights=[1.0] * 10, unmeasurable=(3, 4))

    assert (named.first, named.last) == (3, 5)


def test_a_commit_is_named_only_when_it_and_the_one_before_were_measured() -> None:
    for change in range(12):
        _, pairs = searched(change=change, weights=[1.0] * 12, seed=change)

        assert len(pairs[change]) >= 2
        assert change == 0 or len(pairs[change - 1]) >= 2


def test_too_much_noise_leaves_the_result_undecided() -> None:
    plan = SearchPlan(max_pairs=10)

    ends = [searched(change=5, weights=[1.0] * 12, noise=0.2, seed=seed, plan=plan)[0] for seed in range(4)]

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


def test_identical_sources_have_weight_zero_and_identical_machine_code_little() -> None:
    inputs = [BuildInputs("a", "x"), BuildInputs("a", "x"), BuildInputs("b", "x"), BuildInputs("c", "y")]

    found = prior_weights(inputs)

    assert [one.value for one in found] == [0, SAME_CODE_WEIGHT, 1]
    assert [one.reason for one in found] == [SAME_SOURCES, SAME_CODE, ""]


@pytest.mark.parametrize(("after", "weights"), [("a", [0, 0, 0]), ("b", [1, 1, 1])])
def test_commits_that_cannot_be_loaded_weigh_as_the_next_one_that_can(after: str, weights: list[float]) -> None:
    inputs = [BuildInputs("a"), BROKEN, BROKEN, BuildInputs(after), BuildInputs("z")]

    assert [one.value for one in prior_weights(inputs)] == [*weights, 1]


@pytest.mark.parametrize("inputs", [[BuildInputs(), BuildInputs(), BROKEN], [BuildInputs("a")] * 3])
def test_unknown_or_never_changing_sources_exclude_nothing(inputs: list[BuildInputs]) -> None:
    assert [one.value for one in prior_weights(inputs)] == [1, 1]
