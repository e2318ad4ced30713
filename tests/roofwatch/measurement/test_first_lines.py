"""The first line of `check` and `run`, and what a check of a wrong kernel still proves."""

from pathlib import Path

import pytest

from roofwatch.headlines import headline_of_check, headline_of_run
from roofwatch.measurement.proofs import proofs_of
from roofwatch.model.check_report import CheckedSuite, CheckReport
from roofwatch.model.machine import Outcome
from tests.builders import CASE_ID, make_measurement, make_record

SUITE = Path("bench_norm.py")


def checked(outcome: Outcome) -> CheckedSuite:
    report = CheckReport(
        case_id=CASE_ID, implementation="triton", executor="interpreter", outcome=outcome
    )
    return CheckedSuite(reports=(report,))


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        (Outcome.OK, "right; checked: 1 ok; next: roofwatch run bench_norm.py"),
        (
            Outcome.INCORRECT,
            "wrong: rms_norm triton; checked: 1 incorrect; next: roofwatch check bench_norm.py "
            f"--case {CASE_ID} --implementation triton",
        ),
        (Outcome.UNSUPPORTED, "nothing was checked; checked: 1 unsupported"),
    ],
)
def test_a_check_begins_with_its_verdict_and_the_next_command(outcome: Outcome, line: str) -> None:
    assert headline_of_check(str(SUITE), checked(outcome), None) == line


def test_a_run_begins_with_the_case_that_is_furthest_from_its_limit() -> None:
    near = CASE_ID.replace("float32", "bfloat16")
    record = make_record(
        measurements=[
            make_measurement(near, median_ns=1e6, utilisation=0.9, bound="memory"),
            make_measurement(CASE_ID, median_ns=3e6, utilisation=0.25, bound="memory"),
        ]
    )

    assert headline_of_run(record, SUITE) == (
        f"timed: 2 of 2 results; furthest from its limit: {CASE_ID}: fastest is torch, 3 ms, 25% "
        "of the memory limit; next: roofwatch diagnose rms_norm bench_norm.py"
    )


def test_a_run_with_a_failure_begins_with_it() -> None:
    record = make_record(measurements=[make_measurement(outcome=Outcome.CRASHED, message="stop")])

    assert headline_of_run(record, SUITE) == (
        "failed: rms_norm torch, 1 of 1 result; next: roofwatch check bench_norm.py"
    )


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Outcome.INCORRECT, "every access of 1 interpreted check"),
        (Outcome.CRASHED, "no Triton kernel ran to its end in the interpreter"),
    ],
)
def test_a_wrong_result_does_not_hide_that_accesses_are_in_bounds(
    outcome: Outcome, words: str
) -> None:
    details = {claim.claim: claim.detail for claim in proofs_of(checked(outcome))}

    assert details["bounds"] == words
