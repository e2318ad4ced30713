"""What is measured beside a time, over a history: the host's time of a launch, and the memory of one."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from roofwatch.ci.history.history import judge_history, unconfirmed
from roofwatch.ci.thresholds import Thresholds
from roofwatch.collector.record.machine import Outcome
from roofwatch.db.values import Cause, RunSetting, Series, Verdict
from tests.ci.values import SOFTMAX, make_series, only, stepped

MIB = 2**20
LIMITS = Thresholds()
HOST, MEMORY = "host_ns", "peak_allocated_bytes"


def host_times(*, factor: float = 1.0, count: int = 40, at: int = 20, seed: int = 0) -> list[float]:
    return stepped(count=count, at=at, factor=factor, noise=0.04, seed=seed, level_ns=5_000.0)


def test_memory_that_a_launch_takes_more_of_is_sure_and_calls_somebody() -> None:
    found = only(judge_history([make_series([4 * MIB] * 8 + [6 * MIB] * 4, MEMORY)]))

    assert (found.verdict, found.is_confirmed, found.is_alert) == (Verdict.REGRESSED, True, True)
    assert found.commit.first_parent_count == 9
    assert "peak allocated memory 4 MiB to 6 MiB (+50.0%)" in found.summary
    assert found.cause is Cause.CODE


def test_memory_that_is_freed_again_is_an_improvement_and_undoes_the_regression() -> None:
    worse, better = sorted(
        judge_history([make_series([4 * MIB] * 8 + [6 * MIB] * 8 + [4 * MIB] * 8, MEMORY)]), key=lambda one: one.commit
    )

    assert (worse.verdict, better.verdict) == (Verdict.REGRESSED, Verdict.IMPROVED)
    assert worse.recovered_at == better.commit


@pytest.mark.parametrize("after", range(3, 12))
def test_a_step_between_two_numbers_is_told_from_the_third_commit_on(after: int) -> None:
    """And goes on being told, however long either level is."""
    found = only(judge_history([make_series([4 * MIB] * 86 + [8 * MIB] * after, MEMORY)]))

    assert found.commit.first_parent_count == 87


@pytest.mark.parametrize(
    "values",
    [[4 * MIB] * 20, [0] * 20, [0] * 10 + [512] * 10, [100 * MIB] * 10 + [104 * MIB] * 10, [4 * MIB], []],
    ids=["equal", "none", "the smallest block", "by less than a twentieth", "one run", "no run"],
)
def test_memory_that_tells_nothing(values: Sequence[float]) -> None:
    assert judge_history([make_series(values, MEMORY)]) == []


def test_memory_that_another_torch_counts_accuses_the_toolchain() -> None:
    def compiled_by(version: str, series: Series) -> Series:
        setting = RunSetting("1", toolchain=(("torch", version),))
        return replace(series, points=tuple(replace(point, setting=setting) for point in series.points))

    old, new = make_series([4 * MIB] * 8, MEMORY), make_series([4 * MIB] * 8 + [6 * MIB] * 8, MEMORY)
    points = compiled_by("2.13", old).points + compiled_by("2.14", new).points[8:]

    found = only(judge_history([Series(old.key, points)]))

    assert found.cause is Cause.TOOLCHAIN
    assert "torch 2.13 → 2.14" in found.suspects[0].sentence


def test_a_slower_host_is_a_suspicion_that_accuses_no_kernel_and_calls_nobody() -> None:
    found = only(judge_history([make_series(host_times(factor=1.6), HOST)]))

    assert (found.verdict, found.is_confirmed, found.is_alert) == (Verdict.REGRESSED, False, False)
    assert abs(found.commit.first_parent_count - 21) <= 1
    assert "host time of a launch" in found.summary
    assert found.cause is Cause.UNKNOWN
    code = next(one for one in found.suspects if one.cause is Cause.CODE)
    assert "the kernel on the device is not timed here" in code.sentence
    assert unconfirmed([found]) == []


def test_hosts_in_noise_alone_tell_nothing() -> None:
    assert [judge_history([make_series(host_times(seed=seed), HOST)]) for seed in range(5)] == [[]] * 5


def test_a_machine_that_issues_all_launches_more_slowly_is_told_once() -> None:
    series = [
        make_series(host_times(factor=1.6, seed=seed), HOST, case_id=f"{kernel}/n=1/float32/fwd")
        for seed, kernel in enumerate(("rope", "gelu", "softmax"))
    ]

    found = only(judge_history(series))

    assert found.kernel == "gelu + rope + softmax"


def test_a_kernel_that_is_slower_leads_what_it_takes_beside() -> None:
    found = only(
        judge_history(
            [
                make_series(stepped(count=40, at=20, factor=1.2), case_id=SOFTMAX),
                make_series([4 * MIB] * 20 + [40 * MIB] * 20, MEMORY, case_id=SOFTMAX),
            ]
        )
    )

    assert [one.series.metric for one in found.change_points] == ["median_ns", MEMORY]


def test_two_ways_of_timing_take_what_they_take() -> None:
    cold, rotated = make_series([4 * MIB] * 16, MEMORY), make_series([9 * MIB] * 16, MEMORY)
    points = [replace(point, timing="cupti, cold") for point in cold.points[:8]]
    points += [replace(point, timing="cupti, rotated") for point in rotated.points[8:]]

    assert judge_history([Series(cold.key, tuple(points))]) == []


def test_a_run_that_failed_has_no_memory_and_tells_nothing_of_it() -> None:
    values = [4 * MIB] * 8 + [Outcome.CRASHED] * 3 + [4 * MIB] * 8

    assert judge_history([make_series(values, MEMORY)]) == []


# --- without the history


TIMES = stepped(count=80, factor=1.0)
