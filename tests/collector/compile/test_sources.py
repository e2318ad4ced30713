"""What a worker is seen to read: the bundled kernels count, the rest of roofwatch does not."""

from __future__ import annotations

import json
import subprocess
import sys

from roofwatch.collector.compile.closure import _is_toolchain
from roofwatch.install import PACKAGE_DIR

PROGRAM = """
import json
from roofwatch.collector.compile.dependency_tracking import WatchedSuite
from roofwatch.install import PACKAGE_DIR
suite = WatchedSuite()
for name in ("kernels/reduction/softmax.cu", "cuda.py"):
    (PACKAGE_DIR / name).read_bytes()
print(json.dumps(sorted(suite._watch.sources().files)))
"""


def test_a_file_of_a_bundled_kernel_is_a_source_and_the_toolchain_s_are_not() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    read = json.loads(done.stdout)
    assert str(PACKAGE_DIR / "kernels" / "reduction" / "softmax.cu") in read
    assert str(PACKAGE_DIR / "cuda.py") not in read


def test_the_bundled_kernels_are_no_part_of_the_toolchain() -> None:
    assert not _is_toolchain("roofwatch.kernels.mlp.swiglu")
    assert _is_toolchain("roofwatch.collector.run")
    assert _is_toolchain("torch.nn")
