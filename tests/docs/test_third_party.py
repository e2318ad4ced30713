"""The examples of other people's kernels are listed, checked, compiled and measured."""

from pathlib import Path

import pytest

from roofwatch.model.machine import Outcome
from roofwatch.model.record import RunRecord
from tests.docs.markdown import ROOT
from tests.roofwatch.command import roofwatch, started_roofwatch

FOLDER = ROOT / "examples" / "third_party"


@pytest.mark.slow
def test_they_are_listed_checked_compiled_and_measured(tmp_path: Path) -> None:
    listed = roofwatch("list", FOLDER, "--json").parsed["kernels"]
    assert len(listed) >= 24
    assert {tuple(kernel["directions"]) for kernel in listed} == {("fwd", "bwd")}
    chosen = [
        "liger.rms_norm",
        "liger.geglu",
        "fla.linear_attention",
    ]  # of libdevice, of libdevice, autotuned
    kernels = [word for name in chosen for word in ("-k", name)]

    done = started_roofwatch(
        "run", FOLDER, *kernels, "--targets", "sm_90", "-o", "record.json", cwd=tmp_path
    )

    assert done.status == 1, done.error
    record = RunRecord.read(tmp_path / "record.json")
    found = {
        (accuracy.case_id.split("/")[0], accuracy.case_id[-3:]): accuracy.outcome
        for accuracy in record.accuracies
    }
    # the backward pass overwrites its inputs
    assert found.pop(("liger.geglu", "bwd")) is Outcome.INCORRECT
    assert len(found) == 2 * len(chosen) - 1
    assert set(found.values()) == {Outcome.OK}
    assert {fact.outcome for fact in record.static_facts} == {Outcome.OK}


@pytest.mark.slow
def test_a_gradient_that_is_wrong_in_one_layout_is_found() -> None:
    case = "liger.cross_entropy/rows=4,vocab=500/float32/bwd"

    done = roofwatch("check", FOLDER / "bench_liger.py", "-c", case, "--json")

    wrong = [report for report in done.parsed["reports"] if report["outcome"] == "incorrect"]
    assert done.status == 1
    assert [report["layout"] for report in wrong] == [
        {"tensor": "logits", "arrangement": "transposed"}
    ]
