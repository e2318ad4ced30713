"""How a series stands: judged value by value, and in the end as if all of it had been judged at once."""

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofwatch.ci.ab.pair_evidence import PairEvidence
from roofwatch.ci.changepoint import online, state_bytes
from roofwatch.ci.history.dates import Nights
from roofwatch.ci.history.full_analysis import look_at_series
from roofwatch.ci.history.standing import ErrorStanding, Standing, advanced
from roofwatch.ci.history.standing_bytes import findings_from_json, findings_to_json, from_bytes, to_bytes
from roofwatch.ci.history.trend_finding import TrendFinding
from roofwatch.ci.thresholds import Thresholds
from roofwatch.db.queries.run_results_values import JudgedRun, NewError, News
from tests.builders import NOON
from tests.ci.following import follow, look_whole
from tests.ci.values import RUNNER_CLASS, make_series, stepped


def places_of(findings: Sequence[TrendFinding]) -> list[tuple[str, int]]:
    return [(str(one.change.verdict), one.change.commit.first_parent_count) for one in findings]


def test_a_quiet_series_is_read_a_few_times_only() -> None:
    followed = follow(stepped(count=260, factor=1.0, noise=0.02))

    after_youth = [number for number in followed.looks if number >= 64]
    # 65 · 1.1^15 = 271; and a false alarm or two
    assert len(after_youth) <= 18


@pytest.mark.parametrize("seed", range(6))
def test_in_the_end_each_step_is_told_as_by_a_judgement_of_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    at = int(rng.integers(90, 130))
    values = stepped(count=at + 40, at=at, factor=float(rng.choice([0.8, 1.1, 1.25])), noise=0.02, seed=seed)

    followed = follow(values)

    assert places_of(followed.findings[-1]) == places_of(look_whole(values).findings)
    assert len(followed.findings[-1]) == 1


def test_what_is_kept_is_what_a_judgement_of_all_told_at_the_last_look() -> None:
    values = stepped(count=140, at=100, factor=1.2, noise=0.02)

    followed = follow(values)

    assert followed.findings[-1] == look_whole(values[: followed.looks[-1] + 1]).findings


def test_a_step_is_told_within_ten_commits() -> None:
    followed = follow(stepped(count=130, at=110, factor=1.15, noise=0.02))

    told_at = next(number for number, findings in enumerate(followed.findings) if findings)
    assert 110 <= told_at < 120


def test_a_step_of_times_that_nobody_is_sure_of_is_looked_at_later() -> None:
    values = stepped(count=116, at=100, factor=1.12, noise=0.02)
    sure = follow(values, [0.004] * 116)
    unsure = follow(values, [0.004] * 100 + [0.3] * 16)

    assert [number for number in sure.looks if 100 <= number < 107]
    assert not [number for number in unsure.looks if 100 <= number < 107]


# --- what has to be read again


def brought(*errors: float | None, is_pair: bool = False) -> tuple[News, dict[int, JudgedRun]]:
    runs = {
        number: JudgedRun(number, number, str(number), NOON, NOON.date(), RUNNER_CLASS, is_pair, 0)
        for number in range(100, 100 + len(errors))
    }
    new = [NewError(number, "out", error, is_ok=error is not None) for number, error in zip(runs, errors, strict=True)]
    return News(1, errors=new), runs


def standing_of_errors(errors: Sequence[float]) -> Standing:
    series = make_series(errors, "rmse_ratio", tensor="out")
    return look_at_series([series], "abc", PairEvidence((), Thresholds()), Thresholds()).standing


EXACT = standing_of_errors([1e-7] * 40)


def test_an_error_that_was_seen_before_needs_no_look_but_in_its_turn() -> None:
    """Series of one length are not all read after the same run: at 41 values it is the turn of one in four."""
    looked_at = [name for name in range(400) if advanced(f"case {name}", EXACT, *brought(1e-7)) is None]

    assert 60 < len(looked_at) < 150


@pytest.mark.parametrize("error", [1.0001e-7, 0.0, None], ids=["larger", "exact", "failed"])
def test_an_error_that_was_never_seen_is_looked_at(error: float | None) -> None:
    assert advanced("name", EXACT, *brought(error)) is None


def test_the_first_values_of_a_new_level_are_looked_at_until_it_is_told() -> None:
    """The one that was looked at first does not make the next one familiar."""
    standing = standing_of_errors([1e-7] * 40 + [3e-7])

    assert advanced("name", standing, *brought(3e-7)) is None


def test_a_side_of_a_pair_is_looked_at() -> None:
    assert advanced("name", EXACT, *brought(1e-7, is_pair=True)) is None


def test_other_machine_code_is_looked_at() -> None:
    assert advanced("name", EXACT, News(1, code="abc"), {}) == EXACT
    assert advanced("name", EXACT, News(1, code="other"), {}) is None


def test_what_fails_is_looked_at_until_it_works() -> None:
    assert advanced("name", replace(EXACT, is_failing=True), *brought(1e-7)) is None


# --- how it is kept


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(0, 120))
def test_a_standing_is_kept_to_the_last_bit(seed: int, count: int) -> None:
    values = stepped(count=count, at=count // 2, noise=0.03, seed=seed)
    standing = look_whole(values).standing if values else Standing()
    standing = replace(standing, errors=(ErrorStanding("a runner", "out", 0.0, 1e-7 / 3, 4, 5),), code="f" * 32)

    assert from_bytes(to_bytes(standing)) == standing


def test_findings_are_kept_as_they_are() -> None:
    findings = look_whole(stepped(count=40, at=20)).findings

    assert findings
    assert tuple(findings_from_json(findings_to_json(findings), {})) == findings


def test_findings_at_one_commit_are_read_with_one_commit() -> None:
    findings = look_whole(stepped(count=40, at=20)).findings
    shared: dict[object, object] = {}

    (first,), (second,) = (findings_from_json(findings_to_json(findings), shared) for _ in range(2))

    assert first.change.commit is second.change.commit
    assert first.change.series.runner_class is second.change.series.runner_class


def test_a_standing_takes_two_kilobytes() -> None:
    standing = look_whole(stepped(count=500, at=480, noise=0.02)).standing

    assert len(to_bytes(standing)) < 3_000


@pytest.mark.parametrize("length", [0, 3, 100, -1])
def test_a_standing_that_is_not_whole_is_refused(length: int) -> None:
    kept = to_bytes(look_whole(stepped(count=70)).standing)

    with pytest.raises(ValueError, match="whole"):
        from_bytes(kept[:length])


def test_a_state_of_another_version_is_refused() -> None:
    packed = state_bytes.to_bytes(online.start())

    with pytest.raises(ValueError, match="version 9"):
        state_bytes.from_bytes(b"\x09" + packed[1:])


@given(st.lists(st.dates(date(2020, 1, 1), date(2030, 1, 1)), max_size=30))
def test_nights_are_those_that_came_in(nights: list[date]) -> None:
    one_by_one = Nights()
    for night in nights:
        one_by_one = one_by_one.with_night(night)

    assert list(one_by_one) == list(Nights.of(nights)) == sorted(set(nights))
    assert list(one_by_one.without(Nights.of(nights[:3]))) == sorted(set(nights) - set(nights[:3]))


def test_a_year_of_nights_takes_few_bytes() -> None:
    nights = Nights.of(date(2026, 1, 1) + timedelta(days=day) for day in range(365))

    assert math.log2(nights.bits) < 366


# --- going on from levels found offline


def test_a_series_that_was_resumed_sees_the_next_step_as_soon_as_one_that_was_followed() -> None:
    values = stepped(count=140, at=120, factor=1.2, noise=0.02)
    followed, resumed = (
        online.start(min_relative_change=0.05),
        online.resume(values[:120], [], min_relative_change=0.05),
    )
    for value in values[:120]:
        followed, _ = online.update(followed, value)

    first = {}
    for name, state in (("followed", followed), ("resumed", resumed)):
        for number, value in enumerate(values[120:], start=120):
            state, alarm = online.update(state, value)
            if alarm is not None:
                first[name] = number
                break

    assert set(first) == {"followed", "resumed"}
    assert abs(first["followed"] - first["resumed"]) <= 2
