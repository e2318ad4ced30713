"""Submitted candidates: what is submitted, the verdict, and the ledger of all submissions."""

import fcntl
import json
import shlex
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from roofwatch.ci.ab.submission import SubmissionVerdict
from roofwatch.configuration.settings import load_settings
from roofwatch.model.errors import CollectorError


@dataclass(frozen=True)
class Request:
    """What is submitted: the options of `roofwatch submit`.

    Args:
        spec: Benchmark file in a git repository.
        kernel: None if the spec declares one.
        against: None for the fastest implementation.
        cases: Patterns of case IDs; None for the usual ones.
    """

    candidate: Path
    spec: Path
    revision: str = "HEAD"
    kernel: str | None = None
    against: str | None = None
    entry: str = "candidate"
    cases: tuple[str, ...] | None = None
    budget_s: float = 50.0
    must_be_isolated: bool = False

    def command(self) -> str:
        """The command that repeats the submission."""
        words = [
            "roofwatch",
            "submit",
            str(self.candidate),
            "--spec",
            str(self.spec),
            "--rev",
            self.revision,
        ]
        if self.kernel is not None:
            words += ["--kernel", self.kernel]
        if self.against is not None:
            words += ["--against", self.against]
        for case in self.cases or ():
            words += ["--case", case]
        # the usual name is left out, as a person would
        if self.entry != "candidate":
            words += ["--entry", self.entry]
        return shlex.join(words)


@dataclass
class Result:
    """The verdict and what it rests on; the fields are those of `--json`."""

    verdict: SubmissionVerdict
    reason: str
    evidence: list[dict[str, str]] = field(default_factory=list)
    effect: dict[str, Any] | None = None
    roofline: dict[str, Any] | None = None
    static: list[dict[str, Any]] = field(default_factory=list)
    """Facts of the candidate's kernels by target; from its own process, so they decide nothing."""
    kernels: list[str] = field(default_factory=list)
    """What CUPTI saw of one call on a GPU; likewise."""
    budget: dict[str, Any] = field(default_factory=dict)
    isolation: dict[str, Any] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    candidate: dict[str, Any] = field(default_factory=dict)
    cases: list[str] = field(default_factory=list)
    """Timed ones."""
    checks: dict[str, int] = field(default_factory=lambda: {"calls": 0, "verified": 0})

    @property
    def target(self) -> str:
        """What the submissions with a common error rate have in common."""
        return f"{self.spec['hash']}:{self.spec['kernel']}"


def entries() -> list[dict[str, Any]]:
    """The ledger: all submissions, oldest first, one JSON document per line of a file in the data
    folder.

    Raises:
        CollectorError: the file cannot be read.
    """
    file = _ledger()
    try:
        return [json.loads(line) for line in file.read_text().splitlines()]
    # nothing was submitted yet
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise CollectorError(f"{file}: cannot be read: {error}") from None


def confirmations(target: str) -> int:
    """Number of submissions of a target that reached the confirmation."""
    return sum(entry["target"] == target and entry["error_rate"] > 0 for entry in entries())


def append(result: Result, request: Request, *, submitted_at: datetime) -> None:
    """Add a submission; its parent is the one before of the same file and target.

    Raises:
        CollectorError: the file cannot be written.
    """
    file = str(request.candidate.resolve())
    parent: str | None = None
    # the last one that matches is the parent
    for earlier in entries():
        if (earlier["target"], earlier["file"]) == (result.target, file):
            parent = earlier["hash"]
    entry = {
        "at": submitted_at.isoformat(timespec="seconds"),
        "target": result.target,
        "kernel": result.spec["kernel"],
        "revision": result.spec["revision"],
        "file": file,
        "hash": result.candidate["hash"],
        "parent": parent,
        "verdict": result.verdict,
        "reason": result.reason,
        "ratio": result.effect and result.effect["ratio"],
        "interval": result.effect and result.effect["interval"],
        "error_rate": result.budget["error_rate_spent"],
    }
    ledger = _ledger()
    try:
        ledger.parent.mkdir(parents=True, exist_ok=True)
        with ledger.open("a") as lines:
            # two submissions may end at once; a torn line would lose both
            fcntl.flock(lines, fcntl.LOCK_EX)
            lines.write(json.dumps(entry) + "\n")
    except OSError as error:
        raise CollectorError(f"{ledger}: cannot be written: {error.strerror}") from None


def _ledger() -> Path:
    return load_settings().data_dir / "submissions.jsonl"
