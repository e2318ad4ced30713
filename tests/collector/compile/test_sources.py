"""Which files count as sources of a kernel."""

import importlib
import sys
from pathlib import Path

import pytest

from roofwatch.collector.compile.sources import describe_sources, is_installed
from roofwatch.install import PACKAGE_DIR
from roofwatch.kernels.registry import find_kernel


def test_the_cuda_source_of_a_bundled_kernel_is_a_source_and_the_toolchain_is_not() -> None:
    found = describe_sources([find_kernel("softmax")], sys.modules)

    assert str(PACKAGE_DIR / "kernels" / "reduction") in found.paths
    assert str(PACKAGE_DIR) not in found.paths


def test_installed_packages_are_no_sources_except_for_the_bundled_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roofwatch.collector.compile.sources._BUNDLED", "/venv/lib/site-packages/roofwatch/kernels/")
    assert is_installed("/venv/lib/site-packages/liger_kernel/ops.py")
    assert not is_installed("/venv/lib/site-packages/roofwatch/kernels/mlp/swiglu.py")
    assert not is_installed("/home/user/project/bench_copy.py")


LAZY = """
from roofwatch import KernelSpec, cases

def launch(x):
    import lazy_helper
    return lazy_helper.double(x)

kernel = KernelSpec(
    name="kernel", inputs=lambda case, make: {"x": make.normal(case["n"])}, reference=launch,
    cases=cases(shapes=[{"n": 8}]), flop_count=lambda case: 1, memory_bytes=lambda case: 1,
)
"""


def test_a_module_that_is_imported_at_launch_is_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lazy_suite.py").write_text(LAZY)
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "lazy_helper.py").write_text("def double(x): return 2 * x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path / "library"))
    lazy_suite = importlib.import_module("lazy_suite")

    assert str(tmp_path / "library") in describe_sources([lazy_suite.kernel], ["lazy_suite"]).paths
