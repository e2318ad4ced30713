"""The first line of `check` and `run`, and what a check of a wrong kernel still proves."""

from pathlib import Path
from typing import Any

import pytest

from roofwatch.measurement.explain_check import exit_status, explain_failures, to_json
from roofwatch.measurement.proofs import Proved, proofs_of
from roofwatch.model.check_report import (
    REFERENCE_FAILED,
    Arrangement,
    CheckedSuite,
    CheckReport,
    Layout,
)
from roofwatch.model.machine import Outcome
from roofwatch.tables.headlines import headline_of_check, headline_of_run
from tests.builders import CASE_ID, make_measurement, make_record

SUITE = Path("bench_norm.py")


def checked(outcome: Outcome) -> CheckedSuite:
    report = CheckReport(
        case_id=CASE_ID,
        implementation="triton",
        executor="interpreter",
        outcome=outcome,
        launch_count=1,
    )
    return CheckedSuite(reports=(report,))


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        (
            Outcome.OK,
            "right at sizes that are powers of two only: rms_norm; checked: 1 ok; next: roofwatch "
            "run bench_norm.py",
        ),
        (
            Outcome.INCORRECT,
            "wrong: rms_norm triton; checked: 1 incorrect; next: roofwatch check bench_norm.py "
            f"--case {CASE_ID} --implementation triton",
        ),
        (Outcome.UNSUPPORTED, "no result could be checked: 1 unsupported"),
    ],
)
def test_a_check_begins_with_its_verdict_before_the_next_command(
    outcome: Outcome, line: str
) -> None:
    assert headline_of_check(str(SUITE), checked(outcome), None) == line


def tried(shape: str, **fields: Any) -> CheckReport:
    values: dict[str, Any] = {"outcome": Outcome.OK, **fields}
    return CheckReport(
        case_id=f"scale/{shape}/float32/fwd",
        implementation="triton",
        executor="interpreter",
        **values,
    )


def test_sizes_that_are_powers_of_two_prove_nothing_about_others() -> None:
    declared = tried("n_rows=4,n_cols=4096")
    odd = tried("n_rows=3,n_cols=33")
    refused_odd = tried("n_rows=3,n_cols=33", outcome=Outcome.UNSUPPORTED)

    def result_of(*reports: CheckReport) -> Proved:
        return proofs_of(CheckedSuite(reports=reports))[0].result

    assert result_of(declared, odd) is Proved.PROVEN
    assert result_of(declared) is Proved.CANNOT_TELL
    assert result_of(declared, refused_odd) is Proved.CANNOT_TELL
    limited = headline_of_check(str(SUITE), CheckedSuite(reports=(declared,)), None)
    assert limited.startswith("right at sizes that are powers of two only: scale; ")


def test_a_reference_that_fails_says_nothing_about_the_kernel() -> None:
    message = f"{REFERENCE_FAILED}: TypeError: shape"
    suite = CheckedSuite(
        reports=(tried("n_cols=33", outcome=Outcome.CRASHED, message=message),),
    )

    assert headline_of_check(str(SUITE), suite, None).startswith(f"cannot tell: scale: {message}")
    assert proofs_of(suite)[0].result is Proved.CANNOT_TELL
    assert exit_status(suite) == 2


def test_the_plain_case_comes_before_its_layouts() -> None:
    strided = Layout(tensor="x", arrangement=Arrangement.ROW_STRIDED)
    in_layout = tried("n_cols=64", outcome=Outcome.INCORRECT, layout=strided, message="strided")
    plain = tried("n_cols=33", outcome=Outcome.INCORRECT, message="plain")
    suite = CheckedSuite(reports=(in_layout, plain))

    causes, first, second = explain_failures(str(SUITE), suite.reports, None)

    assert [line.rpartition(": ")[2] for line in causes.splitlines()] == ["plain", "strided"]
    assert ("plain" in first, "strided" in second) == (True, True)
    assert "n_cols=33" in headline_of_check(str(SUITE), suite, None)
    reports = to_json(str(SUITE), suite, None)["reports"]
    assert [report["message"] for report in reports] == ["plain", "strided"]


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
