"""The example of the README works."""

from pathlib import Path

import pytest

from roofwatch.model.machine import Outcome
from roofwatch.model.record import RunRecord
from tests.docs.markdown import ROOT, code_blocks, shell_lines
from tests.roofwatch.command import roofwatch, started_roofwatch

EXAMPLE = code_blocks(ROOT / "README.md", "python")[0]
FILE_NAME = "bench_squared_relu.py"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / FILE_NAME
    path.write_text(EXAMPLE)
    return path


def test_the_commands_name_its_file() -> None:
    assert f"`{FILE_NAME}`" in (ROOT / "README.md").read_text()
    assert {
        word
        for line in shell_lines(ROOT / "README.md")
        for word in line.split()
        if "bench_" in word
    } == {FILE_NAME}


@pytest.mark.slow
def test_it_is_listed_and_measured(file: Path, tmp_path: Path) -> None:
    done = started_roofwatch(
        "run",
        file,
        "--no-static",
        "--blocks",
        "1",
        "-i",
        "triton",
        "-i",
        "torch",
        "-o",
        "record.json",
        cwd=tmp_path,
    )

    assert done.status == 0, done.error
    record = RunRecord.read(tmp_path / "record.json")
    assert {case.dtype for case in record.cases} == {"float32", "bfloat16"}
    assert {accuracy.outcome for accuracy in record.accuracies} == {Outcome.OK}
    assert {m.implementation for m in record.measurements} == {"triton", "torch"}
    assert {m.outcome for m in record.measurements if m.implementation == "torch"} == {Outcome.OK}


def test_it_compiles_for_the_targets_of_the_readme(file: Path, tmp_path: Path) -> None:
    lines = [
        line for line in shell_lines(ROOT / "README.md") if line.startswith("roofwatch static")
    ]
    (line,) = [line for line in lines if "--targets" in line]

    done = roofwatch(
        *line.split()[1:], "--json", cwd=tmp_path, TRITON_CACHE_DIR=str(tmp_path / "cache")
    )

    assert done.status == 0, done.error
    facts = done.parsed["static_facts"]
    assert {fact["target"] for fact in facts} == {"sm_90", "gfx942"}
    assert {(fact["function"], fact["local_bytes"]) for fact in facts} == {
        ("_squared_relu_kernel", 0)
    }


def test_its_backward_pass_is_measured_on_request(file: Path, tmp_path: Path) -> None:
    with_backward = 'dtypes=["float32", "bfloat16"], directions=["fwd", "bwd"])'
    file.write_text(EXAMPLE.replace('dtypes=["float32", "bfloat16"])', with_backward))

    kernels = roofwatch("list", file, "--json", cwd=tmp_path).parsed["kernels"]

    assert [case["direction"] for case in kernels[0]["cases"]] == ["fwd", "bwd", "fwd", "bwd"]
