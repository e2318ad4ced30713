"""The order of jobs on a runner's agenda, and why each is there."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from roofwatch.ci.agenda import CALIBRATION_DAYS, make_agenda
from roofwatch.model.agenda import (
    Bridge,
    ChangedRange,
    Job,
    JobKind,
    OpenRegression,
    SuspectCase,
    WatchState,
)
from tests.builders import NOON, make_commit_ref, sha_of

CASE = ("rms_norm/n=64/float32/fwd", "torch")
OTHER = ("softmax/n=64/float32/fwd", "torch")
COMMITS = tuple(make_commit_ref(number) for number in range(10))


def agenda(**fields: Any) -> list[Job]:
    defaults: dict[str, Any] = {
        "commits": COMMITS,
        "measured": frozenset(sha_of(number) for number in range(10)),
        "timed_at": {CASE: NOON},
        "calibrated_at": {CASE: NOON},
        "seconds_of_run": 300.0,
        "seconds_of_case": 20.0,
    }
    return make_agenda(WatchState(**defaults | fields), now=NOON)


def suspect(subject: tuple[str, str] = CASE, widths: float = 8.0, head: int = 9) -> SuspectCase:
    return SuspectCase(
        subject=subject,
        evidence="+10.5% from the level before",
        weight=widths,
        base=COMMITS[head - 1],
        head=COMMITS[head],
    )


def test_a_runner_with_nothing_open_has_an_empty_agenda() -> None:
    assert agenda() == []


def test_suspicions_of_the_same_commits_are_one_pair_of_the_suspect_cases() -> None:
    (job,) = agenda(suspects=(suspect(), suspect(OTHER, widths=12.0)))

    assert job.kind is JobKind.CONFIRM
    assert (job.base, job.head) == (COMMITS[8], COMMITS[9])
    assert job.subjects == {CASE, OTHER}
    assert job.seconds == 40.0
    assert job.reason == ("softmax/n=64/float32/fwd torch and 1 more: +10.5% from the level before")


def test_the_clearest_suspicion_is_confirmed_first() -> None:
    suspects = (suspect(head=4), suspect(OTHER, widths=12.0, head=7))

    jobs = agenda(suspects=suspects)

    assert [job.head for job in jobs] == [COMMITS[7], COMMITS[4]]


def test_a_suspicion_that_pairs_could_not_decide_is_not_measured_again() -> None:
    given_up = replace(suspect(), is_given_up=True)

    assert agenda(suspects=(given_up,)) == []


def changed_range(base: int, head: int, *candidates: int, is_timed: bool = True) -> ChangedRange:
    return ChangedRange(
        subjects=frozenset({CASE}),
        base=COMMITS[base],
        head=COMMITS[head],
        candidates=frozenset(map(sha_of, candidates)) if candidates else None,
        is_timed=is_timed,
    )


def test_a_confirmed_change_is_located_by_halving_the_commits_that_changed_its_sources() -> None:
    (halved,) = agenda(ranges=(changed_range(1, 9),))
    (among_candidates,) = agenda(ranges=(changed_range(1, 9, 3, 7, 8),))

    assert (halved.kind, halved.base, halved.head) == (JobKind.LOCATE, COMMITS[1], COMMITS[5])
    assert (among_candidates.base, among_candidates.head) == (COMMITS[1], COMMITS[7])


def test_the_only_commit_that_changed_the_sources_is_compared_with_the_one_before_it() -> None:
    changed = changed_range(1, 9, 6)

    (job,) = agenda(ranges=(changed,))
    given_up = agenda(ranges=(changed,), paired={(sha_of(5), sha_of(6)): 3})

    assert (job.base, job.head) == (COMMITS[5], COMMITS[6])
    assert given_up == []


def test_a_change_of_compiled_code_is_located_without_timing() -> None:
    (halved,) = agenda(ranges=(changed_range(1, 9, is_timed=False),))
    (last,) = agenda(ranges=(changed_range(1, 6, 6, is_timed=False),))
    located = agenda(ranges=(changed_range(5, 6, 6, is_timed=False),))

    assert (halved.base, halved.head, halved.is_timed) == (None, COMMITS[5], False)
    assert (last.base, last.head) == (None, COMMITS[5])
    assert located == []


def test_a_change_known_to_its_commit_needs_no_search() -> None:
    only_commit = ChangedRange(subjects=frozenset({CASE}), base=COMMITS[4], head=COMMITS[5])
    rest_skipped = ChangedRange(subjects=frozenset({CASE}), base=COMMITS[3], head=COMMITS[5])

    assert agenda(ranges=(only_commit, rest_skipped), skipped=frozenset({sha_of(4)})) == []


def test_the_newest_commit_is_measured_against_the_last_measured_one() -> None:
    measured = frozenset(sha_of(number) for number in range(7))

    job = agenda(measured=measured)[0]

    assert (job.kind, job.base, job.head) == (JobKind.NEW, COMMITS[6], COMMITS[9])
    assert job.seconds == 300.0


def test_a_new_driver_is_bridged_by_the_last_commit_before_it() -> None:
    bridge = Bridge(
        commit=COMMITS[8], subjects=frozenset({CASE}), differences=("driver 580 to 590",)
    )

    (job,) = agenda(bridges=(bridge,))

    assert (job.kind, job.base, job.head) == (JobKind.BRIDGE, None, COMMITS[8])
    assert job.reason.startswith("driver 580 to 590")


def test_an_open_regression_whose_kernel_changed_again_is_measured_again() -> None:
    regression = OpenRegression(
        kernel="rms_norm",
        subjects=frozenset({CASE}),
        commit=COMMITS[3],
        changed_again_at=COMMITS[8],
    )

    (job,) = agenda(regressions=(regression,))

    assert (job.kind, job.base, job.head) == (JobKind.RECOVER, COMMITS[3], COMMITS[8])


def test_a_missing_noise_floor_is_calibrated() -> None:
    (missing,) = agenda(timed_at={CASE: NOON, OTHER: NOON})

    assert missing.kind is JobKind.CALIBRATE
    assert (missing.base, missing.head) == (COMMITS[9], COMMITS[9])
    assert missing.subjects == {OTHER}
    assert missing.reason == "the noise floor of 1 case is unknown"


def test_an_old_noise_floor_is_calibrated() -> None:
    old = NOON - timedelta(days=CALIBRATION_DAYS + 1)

    (aged,) = agenda(timed_at={CASE: NOON, OTHER: NOON}, calibrated_at={CASE: old, OTHER: NOON})

    assert aged.subjects == {CASE}


def test_the_old_noise_floor_of_a_removed_case_is_not_calibrated() -> None:
    old = NOON - timedelta(days=CALIBRATION_DAYS + 1)

    assert agenda(calibrated_at={CASE: NOON, OTHER: old}) == []


def test_a_calibration_takes_no_longer_than_a_run() -> None:
    timed_at = {(f"rms_norm/n={size}/float32/fwd", "torch"): NOON for size in range(100, 200)}

    (job,) = agenda(timed_at=timed_at, calibrated_at={})

    assert job.reason == "the noise floor of 100 cases is unknown"
    assert len(job.subjects) == 15
    assert job.seconds == 300.0


def test_the_longest_gap_is_halved() -> None:
    measured = frozenset(sha_of(number) for number in (0, 2, 9))

    (job,) = agenda(measured=measured)

    assert (job.kind, job.base, job.head) == (JobKind.FILL, COMMITS[2], COMMITS[6])


def test_the_commits_before_the_newest_are_a_gap_too() -> None:
    jobs = agenda(measured=frozenset({sha_of(0)}))

    assert [(job.kind, job.base, job.head) for job in jobs] == [
        (JobKind.NEW, COMMITS[0], COMMITS[9]),
        (JobKind.FILL, COMMITS[0], COMMITS[5]),
    ]


def test_jobs_are_ordered_by_kind() -> None:
    jobs = agenda(
        measured=frozenset(sha_of(number) for number in (0, 5, 8)),
        suspects=(suspect(head=8),),
        ranges=(ChangedRange(subjects=frozenset({CASE}), base=COMMITS[0], head=COMMITS[5]),),
        calibrated_at={},
    )

    assert [job.kind for job in jobs] == [
        JobKind.CONFIRM,
        JobKind.LOCATE,
        JobKind.NEW,
        JobKind.CALIBRATE,
        JobKind.FILL,
    ]
    assert len({job.key for job in jobs}) == len(jobs)
