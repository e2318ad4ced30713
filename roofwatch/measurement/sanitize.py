"""`roofwatch check --sanitize`: run the check under NVIDIA's compute-sanitizer."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from roofwatch.model.errors import ToolchainError

_SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) error")
_FIRST_ERROR = re.compile(r"=+ (Invalid __\w+__ \w+ of size .*(?:\n=+ +.*){0,4})")
_MAX_ERRORS = 5


def run_sanitized(arguments: Sequence[str]) -> tuple[int, str | None]:
    """Run roofwatch with these arguments under compute-sanitizer's memcheck.

    Returns:
        The exit status, and what memcheck found; None if it found nothing.

    Raises:
        ToolchainError: compute-sanitizer is not installed.
    """
    program = shutil.which("compute-sanitizer")
    if program is None:
        raise ToolchainError(
            "--sanitize needs compute-sanitizer on PATH; it comes with NVIDIA's CUDA toolkit"
        )
    with tempfile.TemporaryDirectory(prefix="roofwatch-sanitize-") as folder:
        log = Path(folder) / "memcheck-%p.log"
        options = ["--tool", "memcheck", "--target-processes", "all", "--log-file", str(log)]
        command = [program, *options, sys.executable, "-m", "roofwatch", *arguments]
        # torch's cache of memory would hide accesses between its tensors
        environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        done = subprocess.run(command, env=environment, check=False)
        text = "\n".join(file.read_text() for file in sorted(Path(folder).glob("*.log")))
    return done.returncode, describe_errors(text)


def describe_errors(text: str) -> str | None:
    """Number and first errors of a memcheck log; None without errors."""
    count = sum(int(number) for number in _SUMMARY.findall(text))
    if not count:
        return None
    lines = [f"compute-sanitizer: {count} errors"]
    first_errors = _FIRST_ERROR.findall(text)[:_MAX_ERRORS]
    lines += ["  " + re.sub(r"\n=+ +", "\n    ", error) for error in first_errors]
    return "\n".join(lines)
