"""Sequential elimination on times with a known truth: who wins, who is dropped, and when it ends."""

import numpy as np

from roofwatch.ci.tuning.race import Race

NOISE = 0.02
ROUNDS = 40


def run_race(true_ns: dict[str, float], *, seed: int) -> Race[str]:
    rng = np.random.default_rng(seed)
    race = Race(list(true_ns))
    while not race.is_over and race.round_count < ROUNDS:
        race.add_round(
            {
                name: rng.normal(true_ns[name], NOISE * true_ns[name], size=5).tolist()
                for name in race.remaining
            }
        )
    return race


def test_a_clear_winner_is_found_in_few_rounds() -> None:
    race = run_race({"slow": 2_000.0, "fast": 1_000.0, "slower": 4_000.0}, seed=1)

    assert race.remaining == ["fast"]
    assert set(race.dropped) == {"slow", "slower"}
    assert race.round_count <= 5
    assert "x slower" in race.dropped["slow"].in_words


def test_the_fastest_is_rarely_dropped() -> None:
    """At most 5 % of races, plus what 200 races vary by."""
    true_ns = {"a": 1_000.0, "b": 1_010.0, "c": 1_020.0, "d": 1_100.0}
    races = [run_race(true_ns, seed=seed) for seed in range(200)]

    assert sum("a" in race.dropped for race in races) <= 18
    assert all("d" in race.dropped for race in races)


def test_equal_times_end_as_a_tie() -> None:
    race = run_race({"a": 1_000.0, "b": 1_000.0}, seed=3)

    assert race.is_over
    assert len(race.remaining) == 2


def test_what_has_no_samples_leaves() -> None:
    race = Race(["works", "fails"])
    race.add_round({"works": [1_000.0]})

    assert race.remaining == ["works"]
    assert race.is_over
    assert race.median_ns("fails") is None
    assert race.median_ns("works") == 1_000.0


def test_a_race_without_entrants_is_over() -> None:
    race: Race[str] = Race([])

    assert race.is_over
    assert race.leader is None
