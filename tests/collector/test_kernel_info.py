"""Where the functions of an implementation stand."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from roofwatch.collector.jobs.kernel_info import repository_of, source_lines
from roofwatch.collector.suite import load_suite
from roofwatch.model.suite_source import SuiteSource

MODULE = '''
import functools

import torch
import triton
import triton.language as tl


@triton.jit
def _helper(x):
    return x * 2


@triton.autotune(configs=[triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})], key=["n"])
@triton.jit
def _kernel(x_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(x_ptr + offs, _helper(tl.load(x_ptr + offs, mask=offs < n)), mask=offs < n)


@triton.jit
def _unused_kernel(x_ptr):
    tl.store(x_ptr, 0)


class _Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        _kernel[(1,)](x, x.numel())
        return x


@functools.cache
def plan():
    return 1


@functools.wraps(plan)
def wrapped():
    return plan()


def double(
    x,
):
    """Called."""
    return _Double.apply(x)


bound = functools.partial(double, x=1)
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "doubling_of_a_test.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path / "pkg")
    monkeypatch.delitem(sys.modules, "doubling_of_a_test", raising=False)
    return importlib.import_module("doubling_of_a_test")


def line_of(text: str) -> int:
    return next(
        number for number, line in enumerate(MODULE.splitlines(), start=1) if line.startswith(text)
    )


@pytest.mark.parametrize("name", ["double", "bound"])
def test_the_launcher_comes_first_then_the_functions_that_triton_compiles(
    module: ModuleType, tmp_path: Path, name: str
) -> None:
    found = source_lines("double", "triton", getattr(module, name), tmp_path)

    assert [(each.function, each.line, each.is_jitted) for each in found] == [
        ("double", line_of("def double"), False),
        ("_kernel", line_of("def _kernel"), True),
        ("_helper", line_of("def _helper"), True),
    ]
    assert {each.file for each in found} == {"pkg/doubling_of_a_test.py"}


def test_decorators_are_looked_through(module: ModuleType, tmp_path: Path) -> None:
    (found,) = source_lines("double", "torch", module.wrapped, tmp_path)

    assert (found.function, found.line) == ("plan", line_of("def plan"))


LATE = """
def launch(x):
    from late_package.ops import double

    return double(x)
"""
LATE_OPS = """
import triton

from .kernels import inner
raise RuntimeError("needs a GPU")


def double(x):
    _launch_double(x)


def _launch_double(x):
    inner[(1,)](x, x.numel())
"""
LATE_KERNELS = """
import triton
import triton.language as tl


@triton.autotune(
    configs=[], key=["n"]
)
@triton.jit
def inner(x_ptr, n):
    tl.store(x_ptr, n)


@triton.jit
def unused(x_ptr):
    tl.store(x_ptr, 0)
"""


def test_a_kernel_that_is_imported_when_called_is_found_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "late_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "ops.py").write_text(LATE_OPS)
    (package / "kernels.py").write_text(LATE_KERNELS)
    (tmp_path / "late_suite_of_a_test.py").write_text(LATE)
    monkeypatch.syspath_prepend(tmp_path)
    suite = importlib.import_module("late_suite_of_a_test")

    found = source_lines("double", "triton", suite.launch, tmp_path)

    assert [(each.file, each.function, each.is_jitted) for each in found] == [
        ("late_package/ops.py", "double", False),
        ("late_package/kernels.py", "inner", True),
    ]
    lines = LATE_KERNELS.splitlines()
    assert lines[found[1].line - 1].startswith("def inner(")
    assert "late_package" not in sys.modules


def test_functions_outside_the_repository_are_left_out(module: ModuleType, tmp_path: Path) -> None:
    import torch

    assert source_lines("double", "triton", module.double, tmp_path / "elsewhere") == ()
    assert source_lines("double", "triton", module.double, None) == ()
    assert source_lines("softmax", "torch", torch.softmax, tmp_path) == ()


def test_every_bundled_implementation_has_a_source_line() -> None:
    source = SuiteSource()
    repository = Path(__file__).parents[3]

    for spec in load_suite(source):
        for implementation in spec.implementations.values():
            found = source_lines(spec.name, implementation.name, implementation.launch, repository)
            assert found, f"{spec.name} {implementation.name}"
            assert not found[0].is_jitted
            # a collective of torch.distributed, and a launch behind it
            is_followed_by_launch = spec.name == "all_reduce_rms_norm"
            is_jitted = implementation.language == "triton" or is_followed_by_launch
            assert any(line.is_jitted for line in found) == is_jitted, spec.name
            for line in found:
                text = (repository / line.file).read_text().splitlines()[line.line - 1]
                assert text.lstrip().startswith(f"def {line.function}(")


def test_files_are_named_from_the_root_that_the_suite_imports_from(tmp_path: Path) -> None:
    assert (
        repository_of(SuiteSource(tmp_path / "bench_a.py", (tmp_path / "src", tmp_path)))
        == tmp_path
    )
    assert repository_of(SuiteSource(tmp_path / "bench_a.py")) is None
