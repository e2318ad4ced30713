"""The pytest plugin: inert until used, checks, and measures against a revision."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from roofwatch.model.record import RunRecord
from tests.docs.markdown import ROOT, code_blocks
from tests.git_repository import commit_file, make_repository

OPTIONS = ("-p", "roofwatch.testing.plugin", "-p", "no:cacheprovider", "-o", "addopts=", "-q")


def run(folder: Path, *options: str) -> tuple[dict[str, int], str]:
    """Run pytest in another process; returns the number of tests by outcome, and the output."""
    command = [sys.executable, "-m", "pytest", *OPTIONS, "--rootdir", str(folder), *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    counts = re.findall(r"(\d+) (passed|failed|warning|error)s?\b", done.stdout.splitlines()[-1])
    return {outcome: int(count) for count, outcome in counts}, done.stdout + done.stderr


def test_nothing_heavy_is_imported_until_a_test_uses_the_fixture(tmp_path: Path) -> None:
    heavy = ("torch", "triton", "numpy", "pydantic", "sqlalchemy")
    (tmp_path / "test_inert.py").write_text(
        f"import sys\ndef test_inert():\n    assert not sys.modules.keys() & set({heavy})\n"
    )
    assert run(tmp_path)[0] == {"passed": 1}


TESTS = """
import pytest, torch

def cube(x):
    return x * x * x

class Lossy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x
    @staticmethod
    def backward(ctx, gradient):
        return 3 * gradient

X = torch.linspace(-1, 1, 64)

def test_right(roofwatch):
    assert roofwatch(cube, X, reference=lambda x: x**3).shape == X.shape

def test_wrong(roofwatch):
    roofwatch(cube, X, reference=lambda x: x**2)

def test_wrong_gradient(roofwatch):
    roofwatch(Lossy.apply, X, reference=lambda x: 2 * x)

def test_gradient_not_asked_for(roofwatch):
    roofwatch(Lossy.apply, X, reference=lambda x: 2 * x, grad=False)

def test_rough(roofwatch):
    roofwatch(cube, X, reference=lambda x: 1.001 * x**3)

@pytest.mark.roofwatch_tolerance(elementwise=1e-2, rmse_ratio=1e-2)
def test_rough_but_tolerated(roofwatch):
    roofwatch(cube, X, reference=lambda x: 1.001 * x**3)
"""


class Reports:
    """Names of the tests by outcome."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            (self.passed if report.passed else self.failed).append(report.nodeid.split("::")[-1])


def test_a_wrong_result_or_gradient_fails_its_test(tmp_path: Path) -> None:
    (tmp_path / "test_calls.py").write_text(TESTS)

    found = Reports()
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main(
            [
                *OPTIONS,
                "--capture=no",
                "--strict-markers",
                "--rootdir",
                str(tmp_path),
                str(tmp_path),
            ],
            [found],
        )

    assert found.passed == ["test_right", "test_gradient_not_asked_for", "test_rough_but_tolerated"]
    assert found.failed == ["test_wrong", "test_wrong_gradient", "test_rough"]


@pytest.mark.slow
def test_a_call_that_got_slower_than_the_revision_fails_its_test(tmp_path: Path) -> None:
    make_repository(tmp_path)
    example = code_blocks(ROOT / "docs/how-to/pytest.md", "python")[0]
    function, _, test = example.partition("\n\n\ndef test_softmax")
    body = f"\n\n\ndef test_softmax{test}".replace(
        "torch.randn(64, 128)", "torch.linspace(0, 1, 8192).view(64, 128)"
    )
    (tmp_path / "layers.py").write_text(function)
    commit_file(tmp_path, "test_layers.py", "import torch\nfrom layers import softmax" + body)
    slower = "    for _ in range(20):\n        e = e + 0\n    return"
    (tmp_path / "layers.py").write_text(function.replace("    return", slower))
    (tmp_path / "test_new.py").write_text(
        (tmp_path / "test_layers.py").read_text().replace("test_softmax", "test_new")
    )

    (tmp_path / "conftest.py").write_text(
        "import roofwatch.testing.plugin\n\nroofwatch.testing.plugin._BUDGET_S = 5.0\n"
    )
    options = ("-n", "2", "--roofwatch-against", "HEAD", "--roofwatch-record", "out.json.gz")
    counts, output = run(tmp_path, *options)

    assert (counts["failed"], counts["passed"]) == (1, 1), output
    assert "not compared with HEAD" in output
    assert "file or directory not found: " in output
    assert output.count("no tests ran") == 0, "the session at the base is not printed"
    record = RunRecord.read(tmp_path / "out.json.gz")
    assert {(case.kernel, case.direction) for case in record.cases} == {
        (name, direction)
        for name in ("test_layers.test_softmax", "test_new.test_new")
        for direction in ("fwd", "bwd")
    }
    assert {one.outcome for one in record.measurements} == {"ok"}


def test_the_time_of_a_comparison_is_told_while_output_is_captured(tmp_path: Path) -> None:
    make_repository(tmp_path)
    (tmp_path / "conftest.py").write_text(
        "import roofwatch.testing.plugin as plugin\n\n"
        "plugin._measure = lambda item, session: plugin._announce(item)\n"
    )
    test = "def test_copy(roofwatch):\n    roofwatch(torch.clone, torch.ones(3), reference=torch.clone)\n"
    commit_file(tmp_path, "test_copy.py", f"import torch\n\n{test}")

    _, output = run(tmp_path, "--roofwatch-against", "HEAD")

    assert "comparing test_copy with HEAD" in output, output


def test_tests_that_measure_nothing_are_told(tmp_path: Path) -> None:
    make_repository(tmp_path)
    commit_file(tmp_path, "test_plain.py", "def test_plain():\n    pass\n")

    _, output = run(tmp_path, "--roofwatch-against", "HEAD")

    assert "nothing was measured: no test that passed called the fixture" in output


TOO_FAR = """
import torch, triton
import triton.language as tl

@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(y_ptr + offs, 2 * x)

def double(x):
    y = torch.empty_like(x)
    double_kernel[(1,)](x, y, x.numel(), BLOCK=64)
    return y

def test_double(roofwatch):
    roofwatch(double, torch.randn(40), reference=lambda x: 2 * x, grad=False)
"""


def test_a_store_past_the_end_fails_the_test_in_the_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    (tmp_path / "test_calls.py").write_text(TOO_FAR)

    counts, output = run(tmp_path)

    assert counts == {"failed": 1}
    assert "wrote past the end of `y_ptr`: element 40 of 40 (double_kernel" in output


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_triton_kernel_is_checked_where_it_has_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    (tmp_path / "test_calls.py").write_text(TOO_FAR.replace("randn(40)", "randn(64)"))

    counts, output = run(tmp_path, "--roofwatch-record", "record.json")

    assert counts == {"passed": 1, "warning": 1}, output
    assert "a Triton kernel has no time without a GPU" in output
    assert not (tmp_path / "record.json").exists()


ASKS_FOR_THE_DEVICE = """
import torch, triton

DEVICE = triton.runtime.driver.active.get_active_torch_device()
PROCESSORS = torch.cuda.get_device_properties(0).multi_processor_count
CONTEXT = torch.cpu.device
"""
TESTS_OF_A_LIBRARY = """
import torch, triton
import triton.language as tl
from library import DEVICE

@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(y_ptr + offs, 2 * tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)

def double(x):
    assert triton.runtime.driver.active.get_current_target().backend == "cuda"
    y = torch.empty_like(x)
    double_kernel[(1,)](x, y, x.numel(), BLOCK=64)
    return y

def test_double(roofwatch):
    roofwatch(double, torch.randn(40, device=DEVICE), reference=lambda x: 2 * x, grad=False)
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_library_that_asks_for_the_device_is_imported_in_the_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "library.py").write_text(ASKS_FOR_THE_DEVICE)
    (tmp_path / "test_library.py").write_text(TESTS_OF_A_LIBRARY)

    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    counts, output = run(tmp_path)
    assert counts == {"error": 1}
    assert "library.py:4: Triton finds no GPU; run pytest with TRITON_INTERPRET=1" in output

    monkeypatch.setenv("TRITON_INTERPRET", "1")
    counts, output = run(tmp_path)
    assert counts == {"passed": 1}, output
