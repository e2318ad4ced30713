"""The kernels' claims where there is no GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
SUITE = str(FOLDER / "test_suite.py")
PARTS = ("every_memory_layout", "odd_single_and_empty", "other_values or trace or expanded")
"""Names of tests of every kernel; each part takes about as long as the others."""
SHARDS = {
    **{part: [SUITE, "-k", part] for part in PARTS},
    "the rest of every kernel": [SUITE, "-k", f"not ({' or '.join(PARTS)})"],
    "single kernels": [str(FOLDER), "--ignore", SUITE],
}


@pytest.mark.slow
@pytest.mark.parametrize("shard", SHARDS)
def test_what_is_claimed_of_launched_kernels_holds_in_the_interpreter(shard: str) -> None:
    command = [sys.executable, "-m", "pytest", *SHARDS[shard], "-q", "-p", "no:cacheprovider"]
    # one process: a second one would have torch and Triton to load, and their tracer, which takes
    # as long as many tests
    options = [
        "-o",
        "addopts=--strict-markers --strict-config",
        "--rootdir",
        str(FOLDER.parent.parent),
    ]
    done = subprocess.run(
        [*command, *options],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=FOLDER.parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
