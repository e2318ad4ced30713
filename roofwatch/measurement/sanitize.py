"""`roofwatch check --sanitize`: run the check under NVIDIA's compute-sanitizer."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from roofwatch.console.terminal import EXIT_CANNOT, EXIT_WRONG
from roofwatch.model.errors import ToolchainError

_PREFIX = re.compile(r"^=+ ?", re.MULTILINE)
# a second such line counts errors that were not printed, which the first includes
_SUMMARY = re.compile(r"^ERROR SUMMARY: (\d+) errors?$", re.MULTILINE)
_INVALID = re.compile(r"^(?:Potential invalid|Invalid) __\w+__ ")
_OWN_FAILURE = re.compile(r"^(?:Internal Sanitizer )?Error: (.*)$", re.MULTILINE)
_OPTIONS = (
    "--tool=memcheck",
    "--target-processes=all",
    # torch asks for devices and symbols that are not there, and handles the answers
    "--report-api-errors=no",
    # a wrong result is no error of an access
    "--check-exit-code=no",
)
_MAX_ERRORS = 5
_MAX_LINES = 5
"""Of an error: its access, line of code, thread, address and the nearest allocation."""


@dataclass(frozen=True)
class Sanitized:
    """How a run under memcheck ended."""

    status: int
    errors: str | None
    """What memcheck found; None if it found nothing."""
    failure: str | None
    """Why memcheck could not look at the whole run."""

    @property
    def messages(self) -> tuple[str, ...]:
        return tuple(text for text in (self.errors, self.failure) if text is not None)

    @property
    def exit_status(self) -> int:
        """1 for an access or a result that is wrong, 2 if memcheck could not look."""
        if self.errors is not None:
            return EXIT_WRONG
        if self.failure is not None:
            return EXIT_CANNOT
        return self.status


def run_sanitized(arguments: Sequence[str]) -> Sanitized:
    """Run roofwatch with these arguments under compute-sanitizer's memcheck.

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
        command = [program, *_OPTIONS, "--log-file", str(log)]
        command += [sys.executable, "-m", "roofwatch", *arguments]
        # torch's cache of memory would hide accesses between its tensors
        environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        done = subprocess.run(command, env=environment, check=False)
        text = "\n".join(file.read_text() for file in sorted(Path(folder).glob("*.log")))
    return Sanitized(
        status=done.returncode,
        errors=describe_errors(text),
        failure=describe_failure(text),
    )


def describe_errors(text: str) -> str | None:
    """Number and first errors of memcheck logs; None without errors."""
    messages = _PREFIX.sub("", text)
    count = sum(int(number) for number in _SUMMARY.findall(messages))
    if not count:
        return None
    noun = "error" if count == 1 else "errors"
    lines = [f"compute-sanitizer: {count} {noun}"]
    for error in _described_errors(messages.splitlines())[:_MAX_ERRORS]:
        first, *others = error
        lines.append(f"  {first}")
        lines += [f"    {line}" for line in others]
    return "\n".join(lines)


def describe_failure(text: str) -> str | None:
    """Why compute-sanitizer itself failed; None if it did not."""
    reasons = _OWN_FAILURE.findall(_PREFIX.sub("", text))
    if not reasons:
        return None
    return f"compute-sanitizer: {'; '.join(dict.fromkeys(reasons))}"


def _described_errors(messages: Sequence[str]) -> list[list[str]]:
    """The first lines of each error, without the frames of its backtrace."""
    errors: list[list[str]] = []
    is_within = False
    for message in messages:
        if _INVALID.match(message):
            errors.append([message])
            is_within = True
        elif not message.startswith(" ") or "Saved host backtrace" in message:
            is_within = False
        elif is_within and len(errors[-1]) < _MAX_LINES:
            errors[-1].append(message.strip())
    return errors
