"""What counts as a source of a suite: the bundled kernels do, the rest of roofwatch does not."""

import json
import subprocess
import sys

import pytest

from roofwatch.collector.compile.suite_modules import is_installed, is_toolchain
from roofwatch.install import PACKAGE_DIR

PROGRAM = """
import json
from roofwatch.collector.compile.sources import SourceTracker
from roofwatch.collector.suite import SuiteSource
from roofwatch.install import PACKAGE_DIR
tracker = SourceTracker()
tracker.suite_is_loaded(SuiteSource())
for name in ("kernels/reduction/softmax.cu", "cuda.py"):
    (PACKAGE_DIR / name).read_bytes()
print(json.dumps(sorted(tracker.of_suite([]).sources.files)))
"""


def test_a_file_of_a_bundled_kernel_is_a_source_and_the_toolchain_s_are_not() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    read = json.loads(done.stdout)
    assert str(PACKAGE_DIR / "kernels" / "reduction" / "softmax.cu") in read
    assert str(PACKAGE_DIR / "cuda.py") not in read


@pytest.mark.parametrize(
    ("module", "expected"),
    [("roofwatch.kernels.mlp.swiglu", False), ("roofwatch.collector.run", True), ("torch", True)],
)
def test_the_bundled_kernels_are_no_part_of_the_toolchain(module: str, expected: bool) -> None:
    assert is_toolchain(module) is expected


def test_an_installed_package_is_no_source_and_the_bundled_kernels_are_wherever_they_lie(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "roofwatch.collector.compile.suite_modules._BUNDLED", "/venv/lib/site-packages/roofwatch/kernels/"
    )
    assert is_installed("/venv/lib/site-packages/liger_kernel/ops.py")
    assert not is_installed("/venv/lib/site-packages/roofwatch/kernels/mlp/swiglu.py")
    assert not is_installed("/home/user/project/bench_copy.py")
