"""The kernels' claims where there is no GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_what_is_claimed_of_launched_kernels_holds_in_the_interpreter():
    folder = Path(__file__).parent
    command = [sys.executable, "-m", "pytest", str(folder), "-q", "-p", "no:cacheprovider"]
    # one process: a second one would have torch and Triton to load, and their tracer, which takes
    # as long as many tests
    options = [
        "-o",
        "addopts=--strict-markers --strict-config",
        "--rootdir",
        str(folder.parent.parent),
    ]
    done = subprocess.run(
        [*command, *options],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=folder.parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
