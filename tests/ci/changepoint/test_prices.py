from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from roofwatch.ci.changepoint.noise import OUTLIER, Noise, bins_of, estimate_noise, prior_noise
from roofwatch.ci.changepoint.segmentation import Prices

LEVELS = np.array([-1.0, 0.25, 4.0])
EDGES = np.array([0, 20, 31], dtype=np.intp)


def series(seed: int) -> np.ndarray:
    values = np.random.default_rng(seed).standard_t(2, size=60)
    values[40:44] += 9.0
    return values


def learnt(values: np.ndarray, *, is_sticky: bool) -> Noise:
    nothing = np.zeros(len(values), dtype=bool)
    return estimate_noise(values, [], nothing, is_sticky=is_sticky, floor=0.01, tick=0.0)


def cost_of(values: np.ndarray, level: float, noise: Noise, masked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each value at a level, and of its tie to the one before it, one by one."""
    distances = (values - level) / noise.deviation
    own = noise.costs[bins_of(distances)]
    ties = np.zeros(len(values))
    for place in range(1, len(values)):
        pair = distances[place - 1 : place + 1]
        if noise.innovation_costs is not None:
            wider = noise.deviation / noise.innovation
            told = np.clip(pair, -OUTLIER, OUTLIER) * noise.autocorrelation
            innovations = (pair - told[::-1]) * wider
            ties[place] = (
                noise.innovation_costs[bins_of(innovations)].sum() - own[place - 1 : place + 1].sum()
            ) / 2 - 2 * np.log(wider)
        elif np.all(np.abs(pair) > OUTLIER):
            ties[place] = noise.stickiness
    own[masked] = 0.0
    ties[1:][masked[1:] | masked[:-1]] = 0.0
    ties[0] = 0.0
    return own, ties


@pytest.mark.parametrize("kind", ["independent", "sticky", "autocorrelated"])
@pytest.mark.parametrize("is_masked", [False, True])
def test_a_block_costs_what_its_values_and_their_ties_cost_one_by_one(kind: str, is_masked: bool) -> None:
    values = series(1) if kind != "autocorrelated" else np.cumsum(series(1)) / 4
    noise = prior_noise(1.0) if kind == "independent" else learnt(values, is_sticky=kind == "autocorrelated")
    assert (noise.stickiness < -1, noise.autocorrelation > 0.5) == (kind == "sticky", kind == "autocorrelated")
    masked = np.zeros(60, dtype=bool)
    masked[15:25] = is_masked

    blocks, ties = Prices(values, LEVELS, EDGES, None).of_blocks(noise, masked)

    for column, level in enumerate(LEVELS):
        own, tied = cost_of(values, level, noise, masked)
        assert blocks[:, column] == pytest.approx(np.add.reduceat(own + tied, EDGES), abs=1e-9)
        assert (np.zeros(3) if ties is None else ties[:, column]) == pytest.approx(tied[EDGES], abs=1e-9)


def test_a_value_counts_by_its_own_width() -> None:
    widths = np.linspace(1, 3, 60)

    blocks, _ = Prices(series(2), LEVELS, EDGES, widths).of_blocks(prior_noise(1.0))

    distances = (series(2)[:, None] - LEVELS) / widths[:, None]
    assert blocks == pytest.approx(np.add.reduceat(prior_noise(1.0).costs[bins_of(distances)], EDGES, axis=0))


def test_a_value_too_far_out_for_a_whole_number_costs_what_any_far_one_does() -> None:
    values = np.concatenate([np.zeros(40), np.full(10, 1e20), np.full(10, -1e20)])

    blocks, _ = Prices(values, LEVELS, np.array([0, 40, 50]), None).of_blocks(prior_noise(1e-9))

    assert blocks[1:] == pytest.approx(np.full((2, 3), 10 * prior_noise(1.0).costs[0]))


def blocks_of(values: np.ndarray) -> np.ndarray:
    """Under a noise that needs all of the memory, which is left to the next."""
    prices = Prices(values, np.linspace(-3, 3, 48), EDGES, None)
    blocks, _ = prices.of_blocks(learnt(np.cumsum(series(1)) / 4, is_sticky=True))
    prices.leave()
    return blocks


def test_series_that_are_priced_at_once_do_not_see_each_other() -> None:
    noise = learnt(np.cumsum(series(1)) / 4, is_sticky=True)
    alone = [blocks_of(series(seed)) for seed in range(3)]

    at_once = [Prices(series(seed), np.linspace(-3, 3, 48), EDGES, None) for seed in range(3)]
    for prices in at_once:
        prices.of_blocks(prior_noise(2.0))

    assert all(np.array_equal(prices.of_blocks(noise)[0], alone[seed]) for seed, prices in enumerate(at_once))


def test_threads_do_not_see_each_other_s_series() -> None:
    long = [np.tile(series(seed), 10) for seed in range(8)]
    alone = [blocks_of(values) for values in long]

    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(blocks_of, long * 10))

    assert all(np.array_equal(one, alone[place % 8]) for place, one in enumerate(together))


def test_a_series_that_left_its_memory_is_not_priced_again() -> None:
    prices = Prices(series(1), LEVELS, EDGES, None)
    prices.of_blocks(prior_noise(1.0))
    prices.leave()

    with pytest.raises(AttributeError):
        prices.of_blocks(prior_noise(2.0))
