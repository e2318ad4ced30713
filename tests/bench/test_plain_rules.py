"""Rules of services that ours is compared with."""

import numpy as np

from bench.plain_rules import fixed_change, t_test

STEP_AT = 40
NOISE = np.random.default_rng(1).normal(0, 0.002, 80)


def test_both_find_a_clear_step_and_neither_anything_in_a_quiet_series() -> None:
    quiet = 100 * np.exp(NOISE)
    stepped = np.where(np.arange(80) < STEP_AT, quiet, 1.2 * quiet)

    assert t_test(stepped) == [STEP_AT]
    assert fixed_change(stepped) == [STEP_AT]
    assert t_test(quiet) == fixed_change(quiet) == []


def test_a_t_is_that_of_the_textbook_where_all_values_of_a_side_are_one_number() -> None:
    """Of sides that do not vary every difference is certain."""
    assert t_test(np.repeat([1.0, 2.0], STEP_AT)) == [STEP_AT]


def test_the_fixed_rule_tells_an_outlier_and_what_follows_it() -> None:
    values = np.full(80, 100.0)
    values[STEP_AT] = 200.0

    # the mean of ten with the outlier is 110
    assert fixed_change(values) == [STEP_AT]
    assert fixed_change(np.concatenate([values[: STEP_AT + 1], [108.0, 100.0]])) == [STEP_AT, STEP_AT + 2]
