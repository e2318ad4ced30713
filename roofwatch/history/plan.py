"""What to bisect: the series by its name, the two ends, and how to measure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from roofwatch.ci.bisect.search import SearchPlan
from roofwatch.collector.errors import CollectorError, SuiteError
from roofwatch.collector.run_plan import RunPlan, Selection
from roofwatch.collector.workers.protocol import SuiteInfo
from roofwatch.history.survey import sha_of

_DIRECTIONS = frozenset({"fwd", "bwd"})


def parse_series(text: str) -> tuple[str, str | None]:
    """Case and implementation of `KERNEL/CASE[/IMPLEMENTATION]`.

    Raises:
        SuiteError: it is no such thing.
    """
    parts = text.split("/")
    if len(parts) > 2 and parts[-1] in _DIRECTIONS:
        return text, None
    if len(parts) > 3 and parts[-2] in _DIRECTIONS:
        return "/".join(parts[:-1]), parts[-1]
    raise SuiteError(
        f"series {text!r}: write KERNEL/CASE/fwd or KERNEL/CASE/fwd/IMPLEMENTATION; roofwatch list --json has the cases"
    )


def choose_implementation(info: SuiteInfo, case_id: str, implementation: str | None) -> str:
    """The implementation that is meant.

    Raises:
        SuiteError: the suite has no such series, or several and none is named.
    """
    selection = Selection((case_id.partition("/")[0],), ("*",), None, None, (literal_pattern(case_id),))
    found = [one.implementation for one in selection.of(info) if one.case.case_id == case_id]
    names = [one.name for one in found if info.device != "cpu" or one.language == "torch"]
    if implementation is not None and implementation in names:
        return implementation
    if implementation is None and len(names) == 1:
        return names[0]
    known = ", ".join(names) or "none"
    raise SuiteError(f"series {case_id}: name one of its implementations that can be timed on this device: {known}")


def missing_from(info: SuiteInfo | None, case_id: str, implementation: str) -> str:
    try:
        if info is not None:
            choose_implementation(info, case_id, implementation)
    except CollectorError as error:
        return str(error)
    return ""


def literal_pattern(name: str) -> str:
    """A shell pattern that matches a name alone."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)


@dataclass(frozen=True)
class BisectPlan:
    """What to bisect, and how.

    Args:
        path: Benchmark file or folder, in a git repository; None for the suite that comes with roofwatch.
        case_id: Of the series.
        implementation: Of the series; None for the only one that can be timed here.
        good: Revision of the good end.
        bad: Revision of the bad end; the good end must be among its first parents, or theirs.
        plan: How to measure; what to measure is filled in.
        output: Folder of bisections; each has one of its own in it.
        search: When to stop.
        threshold: Ends that differ by less, as a fraction, do not differ.
        budget_s: Seconds to measure; None for as many as it takes.
        is_resumed: Go on with what is there.
        is_discarded: Forget it.
    """

    path: Path | None
    case_id: str
    implementation: str | None
    good: str
    bad: str
    plan: RunPlan
    output: Path
    search: SearchPlan
    threshold: float
    budget_s: float | None = None
    is_resumed: bool = False
    is_discarded: bool = False

    @property
    def series(self) -> str:
        return self.case_id if self.implementation is None else f"{self.case_id}/{self.implementation}"


def folder_of(asked: BisectPlan) -> Path:
    """Where a bisection is kept: the same for the same ends, series and suite."""
    good, bad = sha_of(asked.path, asked.good), sha_of(asked.path, asked.bad)
    named = "\n".join(
        ["" if asked.path is None else str(asked.path.resolve()), asked.case_id, asked.implementation or ""]
    )
    return asked.output / f"{good[:12]}-{bad[:12]}-{hashlib.sha256(named.encode()).hexdigest()[:8]}"


def what_was_asked(asked: BisectPlan) -> dict[str, object]:
    """What must be equal for a bisection to go on, as JSON has it."""
    plan = asked.plan
    return {
        "device": plan.device,
        "threads": plan.thread_count,
        "timer": None if plan.timer is None else plan.timer.value,
        "cache": None if plan.cache is None else plan.cache.value,
        "threshold": asked.threshold,
        "error_rate": asked.search.error_rate,
    }
