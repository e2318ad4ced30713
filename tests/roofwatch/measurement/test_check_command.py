"""`roofwatch check` as a user calls it."""

from pathlib import Path

import pytest

from roofwatch.measurement.check import check_target, explain_failures
from roofwatch.model.check_report import Arrangement, Layout
from roofwatch.model.errors import SuiteError
from roofwatch.model.machine import Outcome
from roofwatch.model.suite_source import SuiteSource
from tests.builders import make_check_report, make_tensor_report
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


def test_a_target_is_a_kernel_name_or_a_path(
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


def test_failures_of_one_kind_are_explained_once_and_named() -> None:
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
