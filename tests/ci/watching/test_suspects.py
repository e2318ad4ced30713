"""Which suspicions another pair would decide."""

from __future__ import annotations

from roofwatch.ci.watching.suspects import list_suspects
from roofwatch.model.history import Pair
from tests.builders import CASE_ID, make_commit_ref
from tests.ci.values import make_pair, make_series

LEVEL = [10_000.0, 10_020.0, 9_990.0, 10_010.0, 10_000.0, 10_005.0]


def suspected(values: list[float], *pairs: Pair) -> list[tuple[str, int, int]]:
    numbers = {make_commit_ref(number): number for number in range(20)}
    return [
        (suspect.subject[0], numbers[suspect.base], numbers[suspect.head])
        for suspect in list_suspects([make_series(values)], pairs)
    ]


def test_a_value_off_the_level_is_suspected_at_its_commit() -> None:
    (suspect,) = list_suspects([make_series([*LEVEL, 11_000.0])], ())

    assert (suspect.base, suspect.head) == (make_commit_ref(5), make_commit_ref(6))
    assert suspect.evidence.startswith("the newest value differs by +10.0% from the level before")


def test_a_pair_without_a_change_ends_a_suspicion() -> None:
    assert suspected([*LEVEL, 11_000.0], make_pair(5, 6)) == []


def test_a_pair_without_a_verdict_that_excludes_the_suspected_size_ends_a_suspicion() -> None:
    undecided = make_pair(5, 6, factor=1.01, noise=0.03)

    assert suspected([*LEVEL, 10_400.0], undecided) == [(CASE_ID, 5, 6)]
    assert suspected([*LEVEL, 13_000.0], undecided) == []


def test_one_pair_of_the_same_code_ends_a_suspicion() -> None:
    same_code = make_pair(5, 6, factor=1.1, is_same_code=True)

    assert suspected([*LEVEL, 11_000.0], same_code) == []


def test_a_change_needs_two_jobs() -> None:
    first = make_pair(5, 6, factor=1.1)
    second = make_pair(5, 6, factor=1.1, pair_id="again")

    assert suspected(LEVEL, first) == [(CASE_ID, 5, 6)]
    assert suspected(LEVEL, first, second) == []


def test_a_pair_of_a_part_of_the_range_is_the_second_job() -> None:
    assert suspected(LEVEL, make_pair(2, 6, factor=1.1), make_pair(2, 4, factor=1.1)) == []


def test_a_pair_of_other_commits_is_no_second_job() -> None:
    pairs = make_pair(1, 2, factor=1.1), make_pair(4, 5, factor=1.1)

    assert suspected(LEVEL, *pairs) == [(CASE_ID, 1, 2), (CASE_ID, 4, 5)]


def test_an_undecided_pair_is_measured_at_most_three_times() -> None:
    noisy = [
        make_pair(5, 6, factor=1.03, noise=0.1, pair_id=f"number {number}") for number in range(3)
    ]

    values = [*LEVEL, 11_000.0]
    (open_suspect,) = list_suspects([make_series(values)], noisy[:2])
    (given_up,) = list_suspects([make_series(values)], noisy)

    assert not open_suspect.is_given_up
    assert given_up.is_given_up
    assert given_up.evidence.endswith("3 pairs could not decide it")


def test_a_decided_suspicion_comes_back_only_with_values_that_differ_from_those_since() -> None:
    shifted = [11_000.0, 11_020.0, 10_990.0, 11_005.0, 11_010.0, 11_000.0]
    unchanged, changed = make_pair(5, 6), [make_pair(5, 6, factor=1.1, pair_id=x) for x in "ab"]

    for pairs in ([unchanged], changed):
        for count in range(1, len(shifted) + 1):
            assert suspected([*LEVEL, *shifted[:count]], *pairs) == []
        assert suspected([*LEVEL, *shifted, 12_100.0], *pairs) == [(CASE_ID, 11, 12)]
