"""Everything that a pull request is judged by as one list, and where in the source each finding stands. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roofwatch.ci.ab.comparable import SideResult
from roofwatch.ci.reason import Reason
from roofwatch.ci.report.pull_request import CaseJudgement, PullRequestJudgement
from roofwatch.collector.record.metrics import metric
from roofwatch.collector.record.record import SourceLine
from roofwatch.db.values import Verdict

VERDICT_ORDER = (Verdict.REGRESSED, Verdict.INCONCLUSIVE, Verdict.IMPROVED, Verdict.UNCHANGED)

REASON_WORDS = {
    Reason.NOISE: "the noise reaches over the threshold; more blocks may decide",
    Reason.TOO_FEW_BLOCKS: "fewer than three blocks",
    Reason.MULTIPLICITY: "beyond the threshold, as some of so many comparisons are by chance",
    Reason.NOT_COMPARABLE: "not comparable",
    Reason.NOT_PAIRED: "not measured in one job",
    Reason.SAME_MACHINE_CODE: "the machine code is the same: host, clock or configuration moved, not the kernel",
    Reason.THROTTLED: "the device was held back, or shared",
    Reason.HOST_BOUND: "the host was slower than the device",
    Reason.CLOCK_MOVED: "the clock moved, the cycles did not",
    Reason.MEMORY_MOVED: "the memory of a launch moved",
    Reason.HOST_MOVED: "the host's time of a launch moved, not the kernel on the device",
    Reason.REMOVED_CASE: "in the base only",
    Reason.WRONG_RESULT: "wrong result",
    Reason.FAILED: "fails",
    Reason.FIXED: "works again",
}


@dataclass(frozen=True)
class Finding:
    """A case and implementation, a compiled function that differs, or a metric of a launch that moved."""

    suite: str
    """`measured`, `compiled` or `launched`."""
    case_id: str
    implementation: str
    part: str
    """Which function or metric of the implementation; empty for a case."""
    verdict: Verdict
    reason: Reason
    text: str
    """What was found, unquoted: it may hold words of a record."""
    line: SourceLine | None
    """Where it stands in the head's source, if the record knows it."""
    details: tuple[str, ...] = ()
    head_ns: float | None = None
    """Median time of a case at the head."""

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.case_id, self.implementation, self.part)))


def list_findings(judgement: PullRequestJudgement) -> list[Finding]:
    """All that was judged: the cases, the worst first, then compiled functions and launches."""
    lines = judgement.source_lines
    cases = [
        Finding(
            "measured",
            case.case_id,
            case.implementation,
            "",
            case.verdict,
            case.reason,
            _case_text(case),
            _find_line(lines, case.case_id, case.implementation),
            (f"base: {_side_text(case.base)}", f"head: {_side_text(case.head)}"),
            None if case.head is None else case.head.median_ns,
        )
        for case in worst_first(judgement.cases)
    ]
    compiled = [
        Finding(
            "compiled",
            item.case_id,
            item.implementation,
            f"{item.function} for {item.target}",
            item.verdict,
            item.reason,
            reason_words(item.reason) if item.detail is None else str(item.detail),
            _find_line(lines, item.case_id, item.implementation, item.function),
        )
        for item in judgement.static
    ]
    launched = [
        Finding(
            "launched",
            move.case_id,
            move.implementation,
            metric(move.metric).title,
            move.verdict,
            move.reason,
            move.in_words,
            _find_line(lines, move.case_id, move.implementation),
        )
        for move in judgement.secondary_changes
    ]
    return [*cases, *compiled, *launched]


def reason_words(reason: Reason) -> str:
    return REASON_WORDS.get(reason, str(reason).replace("_", " "))


def worst_first(cases: Iterable[CaseJudgement]) -> list[CaseJudgement]:
    """Regressed ones first, wrong results before slowdowns, large moves before small ones."""

    def weight(case: CaseJudgement) -> tuple[int, bool, float, str, str]:
        size = 0.0 if case.comparison is None else abs(case.comparison.log_ratio)
        is_wrong = case.reason is Reason.WRONG_RESULT
        return VERDICT_ORDER.index(case.verdict), not is_wrong, -size, case.case_id, case.implementation

    return sorted(cases, key=weight)


def _find_line(
    lines: Sequence[SourceLine], case_id: str, implementation: str, function: str | None = None
) -> SourceLine | None:
    """The line of a function; of none in particular, of the only compiled one, else of what is called."""
    # a kernel's name holds no slash, its cases' ids begin with it; what is called comes before what is compiled for it
    own = [one for one in lines if (one.kernel, one.implementation) == (case_id.split("/", 1)[0], implementation)]
    jitted = [line for line in own if line.is_jitted]
    named = [line for line in jitted if line.function == function]
    return next(iter(named or (jitted if len(jitted) == 1 else own)), None)


def _case_text(case: CaseJudgement) -> str:
    parts = [] if case.detail is None else [str(case.detail)]
    if case.comparison is not None:
        low, high = case.comparison.relative_interval
        parts.append(f"time {case.comparison.relative_change:+.1%} (95 % interval {low:+.1%} to {high:+.1%})")
    if not parts:
        parts.append(reason_words(case.reason))
        if case.verdict is Verdict.REGRESSED and case.head is not None and case.head.message:
            parts.append(case.head.message)
    return ": ".join(parts)


def _side_text(side: SideResult | None) -> str:
    if side is None:
        return "not measured"
    if side.failure is not None:
        return f"{side.failure}: {side.message or ''}"
    return "not timed" if side.median_ns is None else metric("median_ns").format(side.median_ns)
