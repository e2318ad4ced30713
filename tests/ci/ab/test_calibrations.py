from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from roofwatch.ci.ab.noise_floor import noise_of_runners, stored_floor
from roofwatch.db.values import Pair
from tests.builders import CASE_ID, NOON, PROJECT, make_commit_ref


def make_pair(*, seed: int = 1, spread: float = 0.01, slower: float = 1.0, block_count: int = 8, **fields: Any) -> Pair:
    """A commit against itself, in blocks of five samples."""
    rng = np.random.default_rng(seed)

    def side(factor: float) -> tuple[tuple[float, ...], ...]:
        return tuple(
            tuple(1_000.0 * factor * np.exp(level + rng.normal(0, 0.001, 5)))
            for level in rng.normal(0, spread, block_count)
        )

    defaults: dict[str, Any] = {
        "project": PROJECT,
        "pair_id": f"pair {seed}",
        "base": make_commit_ref(0),
        "head": make_commit_ref(0),
        "case_id": CASE_ID,
        "implementation": "eager",
        "runner_class": "runner",
        "measured_at": NOON,
        "base_blocks_ns": side(1.0),
        "head_blocks_ns": side(slower),
    }
    return Pair(**defaults | fields)


def test_the_floor_of_a_runner_is_the_deviation_of_its_blocks() -> None:
    (noise,) = noise_of_runners([make_pair(spread=0.01, block_count=40)])

    assert noise.runner_class == "runner"
    assert noise.cases[0].noise_floor == pytest.approx(0.01, rel=0.4)
    assert noise.median_floor == noise.cases[0].noise_floor
    assert (noise.comparison_count, noise.false_alarm_count, noise.false_alarm_rate) == (1, 0, 0.0)


def test_a_verdict_that_a_commit_changed_against_itself_is_a_false_alarm() -> None:
    (noise,) = noise_of_runners([make_pair(seed=1), make_pair(seed=2, slower=1.5)])

    assert (noise.calibration_count, noise.comparison_count) == (2, 2)
    assert (noise.false_alarm_count, noise.significant_count, noise.false_alarm_rate) == (1, 1, 0.5)


def test_the_newest_calibration_of_a_case_is_its_floor() -> None:
    newest, older = make_pair(seed=3, spread=0.002), make_pair(seed=4, spread=0.05)

    (noise,) = noise_of_runners([newest, older])

    assert len(noise.cases) == 1
    assert noise.cases[0].noise_floor < 0.01


def test_a_stored_floor_has_of_each_case_and_way_of_timing_what_is_newest() -> None:
    newest = make_pair(seed=3, spread=0.002, timing="cupti, cold", harness_version="1")
    older = make_pair(seed=4, spread=0.05, timing="cupti, cold")
    hot = make_pair(seed=5, spread=0.05, timing="cupti, hot")
    too_short = make_pair(seed=6, block_count=2, implementation="triton")

    floor = stored_floor([newest, older, hot, too_short])

    assert floor is not None
    assert [(case.implementation, case.timing, case.sample_count) for case in floor.cases] == [
        ("eager", "cupti, cold", 5),
        ("eager", "cupti, hot", 5),
    ]
    assert floor.cases[0] == noise_of_runners([newest])[0].cases[0]
    assert (floor.runner_class, floor.harness_version, floor.commit_sha) == ("runner", "1", newest.head.sha)
    assert stored_floor([too_short]) is None
    assert floor.preset is None


def test_a_stored_floor_says_its_preset_where_all_of_it_was_sampled_so() -> None:
    gate, quick = make_pair(seed=3, preset="gate"), make_pair(seed=4, preset="quick")

    floors = [stored_floor(pairs) for pairs in ([gate], [gate, gate], [gate, quick])]

    assert [floor and floor.preset for floor in floors] == ["gate", "gate", None]


def test_the_noisiest_case_comes_first() -> None:
    quiet, loud = make_pair(seed=5, spread=0.002), make_pair(seed=6, spread=0.05, implementation="triton")

    (noise,) = noise_of_runners([quiet, loud])

    assert [case.implementation for case in noise.cases] == ["triton", "eager"]


def test_pairs_of_two_commits_and_pairs_that_were_cut_short_are_no_calibration() -> None:
    whole = make_pair()
    two_commits = replace(whole, head=make_commit_ref(1))
    cut_short = replace(whole, head_blocks_ns=whole.head_blocks_ns[:3])

    assert noise_of_runners([two_commits, cut_short]) == []


def test_too_few_blocks_say_nothing_of_the_noise() -> None:
    (noise,) = noise_of_runners([make_pair(block_count=2)])

    assert (noise.cases, noise.comparison_count, noise.median_floor, noise.false_alarm_rate) == ((), 0, None, None)
