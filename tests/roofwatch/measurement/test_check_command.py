"""`roofwatch check` as a user calls it."""

from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

from roofwatch.measurement.check import check_target
from roofwatch.measurement.explain_check import (
    check_summary,
    exit_status,
    explain_failures,
    explain_overflows,
)
from roofwatch.measurement.proofs import Proved, SuiteClaim, proofs_of
from roofwatch.model.check_report import Arrangement, CheckedSuite, CheckReport, Layout
from roofwatch.model.errors import SuiteError
from roofwatch.model.machine import Outcome
from roofwatch.model.memory_fault import MemoryFault
from roofwatch.model.proofs import Proof, SizeLimit
from roofwatch.model.regime import Regime
from roofwatch.model.suite_source import SuiteSource
from roofwatch.tables.check import checks
from roofwatch.tables.headlines import headline_of_check
from tests.builders import (
    make_check_report,
    make_overflow_proof,
    make_tensor_report,
    make_unproven_access,
)
from tests.roofwatch.command import SUITES, roofwatch

BROKEN = SUITES / "bench_broken.py"
TAIL = "tail/n_rows=3,n_cols=200/float32/fwd"


@pytest.mark.slow
def test_a_wrong_kernel_is_explained_with_a_command_that_repeats_it(tmp_path: Path) -> None:
    done = roofwatch("check", BROKEN, "--case", "tail/*", cwd=tmp_path)
    assert done.status == 1
    for words in (
        "24 of 600 elements are wrong",
        "after the last whole tile of 64",
        "NaN, inf",
        "got nan",
    ):
        assert words in done.output
    assert "checked: 3 ok, 1 incorrect; in other layouts: 3 ok" in done.output
    (repeat,) = [
        line.split("in all layouts: roofwatch ")[1]
        for line in done.output.splitlines()
        if "  repeat, " in line
    ]

    again = roofwatch(*repeat.split(), "--json", cwd=tmp_path)
    assert again.status == again.parsed["exit_status"] == 1
    (report,) = again.parsed["reports"]
    assert report["failed"] is True
    assert (report["case_id"], report["implementation"]) == (TAIL, "triton")
    assert report["tensors"][0]["worst"][0]["got"] == "nan"
    assert report["repeat"] == f"roofwatch {repeat}"


def test_a_correct_kernel_exits_with_0(tmp_path: Path) -> None:
    done = roofwatch("check", BROKEN, "-c", "sound/*", "-i", "triton", cwd=tmp_path)
    assert done.status == 0, done.output
    assert "in other layouts: 2 ok, 1 refused; with other values: 3 ok" in done.output


def test_a_target_is_a_path_unless_it_is_a_kernel_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bench_x.py").touch()
    (tmp_path / "layers").mkdir()
    assert check_target("softmax") == (SuiteSource(), ("softmax",))
    assert check_target("matmul*")[1] == ("matmul*",)
    assert check_target("bench_x.py")[0].path == tmp_path / "bench_x.py"
    assert check_target("layers")[0].path == tmp_path / "layers"
    with pytest.raises(SuiteError, match=r"kernels/gone: no such file or folder"):
        check_target("kernels/gone")


def make_fault(**fields: Any) -> MemoryFault:
    usual = {
        "access": "store",
        "kernel": "_double_kernel",
        "file": "bench_x.py",
        "line": 12,
        "operand": "y_ptr",
        "offset": 40,
        "length": 40,
        "program": (0, 0, 0),
    }
    return MemoryFault.model_validate(usual | fields)


def test_a_case_that_fails_in_a_layout_is_not_shown_as_ok() -> None:
    layout = Layout(tensor="x", arrangement=Arrangement.TRANSPOSED)
    reports = [
        make_check_report(),
        make_check_report(layout=layout, outcome=Outcome.INCORRECT),
        make_check_report(regime=Regime.PEAKED),
    ]
    table = checks(reports)
    (outcome,) = table.columns[3].cells
    assert isinstance(outcome, Text)
    assert outcome.plain == "incorrect: layout"
    assert "red" in str(outcome.style)


def test_a_case_that_fails_in_any_variation_does_not_count_as_ok() -> None:
    layout = Layout(tensor="x", arrangement=Arrangement.TRANSPOSED)
    cases = ("k/n=8/float32/fwd", "k/n=16/float32/fwd", "k/n=32/float32/fwd")
    reports = [
        *[make_check_report(case_id=case_id) for case_id in cases],
        make_check_report(case_id=cases[1], layout=layout, outcome=Outcome.INCORRECT),
        make_check_report(case_id=cases[2], regime=Regime.PEAKED, outcome=Outcome.INCORRECT),
    ]
    assert check_summary(reports) == (
        "checked: 1 ok, 1 wrong in other layouts, 1 wrong with other values; "
        "in other layouts: 1 incorrect; with other values: 1 incorrect"
    )


def test_stores_past_the_end_of_one_operand_are_one_cause_in_any_case() -> None:
    reports = [
        make_check_report(
            case_id=f"k/n={length}/float32/fwd",
            executor="interpreter",
            outcome=Outcome.INCORRECT,
            faults=(make_fault(offset=length, length=length),),
        )
        for length in (8, 16, 32)
    ]
    (text,) = explain_failures("bench_x.py", reports, "cpu")
    assert "wrote past the end of `y_ptr`: element 8 of 8 (_double_kernel, bench_x.py:12" in text
    assert "the same in 2 more: k/n=16/float32/fwd triton, k/n=32/float32/fwd triton" in text


def test_a_crash_says_first_what_was_written_past_the_end() -> None:
    fault = make_fault()
    reports = [
        make_check_report(
            case_id=f"{kernel}/n={length}/float32/fwd",
            executor="interpreter",
            outcome=Outcome.INCORRECT,
            message=f"{fault.message}; then RuntimeError: the stream is gone",
            faults=(fault, make_fault(other_program=(1, 0, 0))),
        )
        for kernel in ("first", "second")
        for length in (8, 16, 24, 32)
    ]
    (text,) = explain_failures("bench_x.py", reports, "cpu")

    _, name, cause, race, others, _ = text.splitlines()
    assert name == "first/n=8/float32/fwd triton: incorrect"
    assert cause.startswith("  wrote past the end of `y_ptr`")
    assert cause.endswith("; then RuntimeError: the stream is gone")
    assert race.startswith("  race")
    assert others.startswith("  the same in 7 more: second/n=8/float32/fwd triton, first/n=16")


def claims_of(suite: CheckedSuite) -> dict[str, SuiteClaim]:
    return {claim.claim: claim for claim in proofs_of(suite)}


def test_each_claim_has_one_of_three_states() -> None:
    interpreted = make_check_report(executor="interpreter", launch_count=1)
    without_kernel = make_check_report(executor="interpreter")
    wrong = make_check_report(
        executor="interpreter", outcome=Outcome.INCORRECT, faults=(make_fault(),)
    )
    unknown = make_check_report(executor="interpreter", launch_count=1, unknown_pointer_count=3)

    def results(*reports: CheckReport) -> dict[str, Proved]:
        claims = claims_of(CheckedSuite(reports))
        return {name: claim.result for name, claim in claims.items()}

    assert results(make_check_report())["bounds"] is Proved.CANNOT_TELL
    odd = make_check_report(case_id="rms_norm/n_rows=3,n_cols=33/float32/fwd")
    assert results(odd)["results"] is Proved.PROVEN
    assert results(interpreted)["bounds"] is results(interpreted)["races"] is Proved.PROVEN
    assert results(without_kernel)["bounds"] is Proved.CANNOT_TELL
    assert results(without_kernel)["races"] is Proved.CANNOT_TELL
    assert results(interpreted)["values"] is Proved.CANNOT_TELL
    assert results(interpreted, wrong)["bounds"] is Proved.REFUTED
    assert results(interpreted, unknown)["races"] is Proved.CANNOT_TELL


def test_bounds_are_proven_without_a_reference() -> None:
    report = make_check_report(executor="interpreter", outcome=Outcome.UNSUPPORTED, launch_count=1)
    claims = claims_of(CheckedSuite((report,)))
    assert claims["bounds"].result is Proved.PROVEN
    assert claims["results"].result is Proved.CANNOT_TELL


def test_nothing_is_proven_by_an_interpreter_that_could_not_be_corrected() -> None:
    torch_reports = [
        make_check_report(),
        make_check_report(layout=Layout(tensor="x", arrangement=Arrangement.TRANSPOSED)),
    ]
    untried = make_check_report(
        executor="interpreter",
        outcome=Outcome.UNSUPPORTED,
        interpreter_defect="Triton 9.9's interpreter cannot be corrected",
    )
    suite = CheckedSuite((*torch_reports, untried))

    claims = claims_of(suite)

    assert Proved.PROVEN not in {claim.result for claim in claims.values()}
    assert "Triton 9.9" in claims["results"].detail
    assert "Triton 9.9" in claims["layouts"].detail
    assert exit_status(suite) == 2
    assert headline_of_check("bench.py", suite, None).startswith("cannot tell")
    wrong = make_check_report(outcome=Outcome.INCORRECT)
    assert claims_of(CheckedSuite((wrong, untried)))["results"].result is Proved.REFUTED


ROW_LIMIT = SizeLimit(dimension="n_rows", declared=8, largest=1_000, first=make_unproven_access())
FITS_UP_TO_LIMIT = make_overflow_proof(access_count=2, limits=(ROW_LIMIT,))


def test_the_proof_of_offsets_names_a_size_limit() -> None:
    offsets = claims_of(CheckedSuite((make_check_report(),), (FITS_UP_TO_LIMIT,)))["offsets"]

    assert offsets.result is Proved.PROVEN
    assert offsets.detail == "all 2 accesses of 1 case fit into 32 bits, up to n_rows = 1,000"


def test_an_overflow_refutes_the_check() -> None:
    unsafe = make_overflow_proof(
        case_id="k/n=9/float32/fwd", proof=Proof.UNSAFE, unproven=(make_unproven_access(),)
    )
    suite = CheckedSuite((make_check_report(),), (FITS_UP_TO_LIMIT, unsafe, unsafe))

    assert claims_of(suite)["offsets"].result is Proved.REFUTED
    assert exit_status(suite) == 1
    (text,) = explain_overflows(suite.overflow_proofs)
    assert text.startswith("\nk/n=9/float32/fwd: overflows: load of x_ptr in _kernel")
    assert text.endswith("; the same in 1 more")


def test_failures_of_one_kind_are_explained_once() -> None:
    layouts = [Layout(tensor=name, arrangement=Arrangement.ROW_STRIDED) for name in ("x", "weight")]
    reports = [
        make_check_report(
            case_id=f"k/n={length}/float32/fwd",
            outcome=Outcome.INCORRECT,
            layout=layout,
            tensors=(make_tensor_report(),),
        )
        for length in (8, 16)
        for layout in layouts
    ]
    sound = make_check_report(case_id="k/n=1/float32/fwd")
    (text,) = explain_failures("bench_k.py", [*reports, sound], "cpu")

    assert text.count("elements are wrong") == 1
    assert "the same in 3 more:" in text
    assert "k/n=16/float32/fwd triton with weight row-strided in memory" in text
    assert text.endswith(
        "roofwatch check bench_k.py --case k/n=8/float32/fwd --implementation triton --device cpu"
    )
