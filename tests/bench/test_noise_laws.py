"""The laws that an oracle is told, beside what defines them."""

import itertools
import math

import numpy as np
import pytest

from bench.detector_series import COARSE, NOISES, TICK, on_levels
from bench.noise_laws import Law, evidence_of_steps, law_of, log_likelihood


@pytest.mark.parametrize("kind", NOISES)
def test_the_chances_of_a_law_add_up_to_one(kind: str) -> None:
    law = law_of(kind)
    grid = np.arange(-15.0, 30.0, TICK if kind == COARSE else 0.02)
    width = TICK if kind == COARSE else 0.02

    for transition in (law.transition(1), law.transition(40)):
        assert transition.sum(axis=1) == pytest.approx(1.0)
    assert law.initial.sum() == pytest.approx(1.0)
    masses = law.density(grid, np.zeros_like(grid)).sum(axis=0) * (1.0 if kind == COARSE else width)
    assert masses == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("kind", [kind for kind in NOISES if kind != "ramp"])
def test_noise_is_likelier_under_its_own_law_than_under_another(kind: str) -> None:
    """Which it is on average, and by as much as the laws differ (Gibbs's inequality)."""
    values = np.array([NOISES[kind](200, np.random.default_rng(seed)) for seed in range(5)])
    own = log_likelihood(law_of(kind), values).mean()

    # a coarse clock's law gives masses, the others densities
    others = [other for other in NOISES if other not in (kind, COARSE, "ramp")]
    assert all(own + math.log(TICK) * (kind == COARSE) >= log_likelihood(law_of(one), values).mean() for one in others)


def test_the_likelihood_of_hidden_states_is_the_sum_over_all_their_paths() -> None:
    law = law_of("two states")
    values = on_levels("two states", np.zeros(6), np.random.default_rng(3))

    assert log_likelihood(law, values[None])[0] == pytest.approx(math.log(over_all_paths(law, values)))


def over_all_paths(law: Law, values: np.ndarray) -> float:
    density = law.density(values, np.concatenate([[0.0], values[:-1]]))
    total = 0.0
    for path in itertools.product(range(len(law.initial)), repeat=len(values)):
        moves = [law.transition(i)[path[i - 1], path[i]] for i in range(1, len(values))]
        seen = [density[i, state] for i, state in enumerate(path)]
        total += float(law.initial[path[0]] * np.prod(moves) * np.prod(seen))
    return total


@pytest.mark.parametrize("kind", ["normal", "two states", "bursts", "changing width"])
def test_the_evidence_of_a_step_is_how_much_likelier_the_series_is_with_it(kind: str) -> None:
    law = law_of(kind)
    levels = np.repeat([0.0, 3.0], [50, 10])
    values = on_levels(kind, levels, np.random.default_rng(5))

    evidence = evidence_of_steps(law, values, (values - 3.0)[None], 20)

    expected = log_likelihood(law, (values - levels)[None]) - log_likelihood(law, values[None])
    assert evidence[-1, 0, 9] == pytest.approx(float(expected[0]))


def test_a_step_of_autocorrelated_noise_is_weighed_by_what_each_value_adds() -> None:
    law = law_of("autocorrelated")
    values = on_levels("autocorrelated", np.repeat([0.0, 3.0], [30, 5]), np.random.default_rng(1))
    levels = np.repeat([0.0, 3.0], [30, 5])

    evidence = evidence_of_steps(law, values, (values - 3.0)[None], 10)[-1, 0, 4]

    expected = log_likelihood(law, (values - levels)[None]) - log_likelihood(law, values[None])
    assert evidence == pytest.approx(float(expected[0]))
