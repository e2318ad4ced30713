"""Times by different timers and cache states in one history."""

from dataclasses import replace

from roofwatch.ci.history.history import judge_history
from roofwatch.db.values import Series, Verdict
from tests.builders import make_commit_ref
from tests.ci.values import make_point, make_series, only, stepped

COUNT = 24
HOT, COLD = "cupti, hot", "cuda_event, cold"


def timed(values: list[float], timings: list[str]) -> Series:
    series = make_series(values)
    points = zip(series.points, timings, strict=True)
    return replace(series, points=tuple(replace(point, timing=timing) for point, timing in points))


def test_what_is_timed_otherwise_from_a_commit_on_has_not_changed_there() -> None:
    values = stepped(count=COUNT, at=12, factor=1.4)
    timings = [HOT] * 12 + [COLD] * 12

    assert judge_history([timed(values, timings)]) == []
    assert judge_history([timed(values, [HOT] * COUNT)]) != []


def test_a_step_before_the_change_stays_told_and_so_is_one_after_it() -> None:
    before = [*stepped(count=COUNT, at=12, factor=1.4), *stepped(count=COUNT, at=12, factor=1.0, level_ns=1e7)]
    after = [*stepped(count=COUNT, at=12, factor=1.0), *stepped(count=COUNT, at=12, factor=1.4, level_ns=1e7)]
    timings = [HOT] * COUNT + [COLD] * COUNT

    assert only(judge_history([timed(before, timings)])).commit == make_commit_ref(12)
    assert only(judge_history([timed(after, timings)])).commit == make_commit_ref(COUNT + 12)


def test_what_both_show_at_one_commit_is_told_once_by_the_newer() -> None:
    hot, cold = stepped(count=COUNT, factor=1.4), stepped(count=COUNT, factor=1.4, level_ns=1e7, seed=1)
    both = [
        point
        for number in range(COUNT)
        for point in (
            make_point(number, hot[number], timing=HOT),
            make_point(number, cold[number], run=1, timing=COLD),
        )
    ]

    found = only(judge_history([replace(make_series([]), points=tuple(both))]))

    (change,) = found.change_points
    assert found.verdict is Verdict.REGRESSED
    assert change.before is not None
    assert change.before > 5e6
