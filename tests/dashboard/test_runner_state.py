"""Whether a runner reports, and undisturbed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from roofwatch.dashboard.runner_state import runner_state
from tests.builders import NOON

NIGHTS = [NOON + timedelta(days=day) for day in range(10)]
BURST = [NOON + timedelta(seconds=8 * number) for number in range(60)]


@pytest.mark.parametrize(
    ("since_last", "word"), [(timedelta(days=2), "ok"), (timedelta(days=4), "silent")]
)
def test_a_nightly_runner_is_silent_after_three_nights(since_last: timedelta, word: str) -> None:
    assert runner_state(NIGHTS, 0.0, NIGHTS[-1] + since_last).word == word


@pytest.mark.parametrize(
    ("since_last", "word"), [(timedelta(minutes=59), "ok"), (timedelta(minutes=61), "silent")]
)
def test_runs_within_seconds_of_one_another_are_no_schedule(
    since_last: timedelta, word: str
) -> None:
    state = runner_state(BURST, 0.0, BURST[-1] + since_last)
    assert state.word == word
    assert "second" not in state.explanation


def test_a_newest_run_that_was_throttled_says_how_much_of_it() -> None:
    state = runner_state(NIGHTS, 0.25, NIGHTS[-1])
    assert (state.word, state.explanation) == (
        "throttled",
        "throttled or shared 25%, last result just now",
    )
