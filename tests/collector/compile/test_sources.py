"""Which files count as sources of a kernel."""

import importlib
from pathlib import Path

import pytest

from roofwatch.collector.compile import sources


def test_installed_packages_are_no_sources_except_for_the_bundled_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roofwatch.collector.compile.sources._BUNDLED", "/venv/lib/site-packages/roofwatch/kernels/")
    assert sources.is_installed("/venv/lib/site-packages/liger_kernel/ops.py")
    assert not sources.is_installed("/venv/lib/site-packages/roofwatch/kernels/mlp/swiglu.py")
    assert not sources.is_installed("/home/user/project/bench_copy.py")


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
    def digest() -> str:
        sources._read_module.cache_clear()
        return sources.source_digests([lazy_suite.kernel], ["lazy_suite"])["kernel"]

    (tmp_path / "lazy_suite.py").write_text(LAZY)
    (tmp_path / "library").mkdir()
    helper = tmp_path / "library" / "lazy_helper.py"
    helper.write_text("def double(x): return 2 * x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path / "library"))
    lazy_suite = importlib.import_module("lazy_suite")
    before = digest()

    helper.write_text('"""Doubles."""\ndef double(x): return 2 * x  # twice\n')
    assert digest() == before
    helper.write_text("def double(x): return x + x\n")
    assert digest() != before
