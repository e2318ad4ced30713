"""The changes of a judgement in words: their names, texts and lines in the source. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from roofwatch.ci.ab.compare import PairedEstimate
from roofwatch.ci.claims.cases import CaseEvidence
from roofwatch.ci.claims.reason_words import reason_words
from roofwatch.ci.judge.change import Change
from roofwatch.ci.judge.pairing import SideResult
from roofwatch.ci.report.pull_request import PullRequestJudgement
from roofwatch.ci.static.analyses import AnalysisEvidence
from roofwatch.ci.static.comparison import CodeEvidence, is_listed
from roofwatch.model.metrics import metric
from roofwatch.model.source_line import SourceLine
from roofwatch.model.verdict import Reason, Verdict

VERDICT_ORDER = (
    Verdict.REGRESSED,
    Verdict.INCONCLUSIVE,
    Verdict.PREDICTED_SLOWER,
    Verdict.IMPROVED,
    Verdict.PREDICTED_FASTER,
    Verdict.UNCHANGED,
)


def counted_changes(judgement: PullRequestJudgement) -> list[Change[Any]]:
    """List the changes that count for the verdict: all cases, the worst first, then compiled
    functions and launches.
    """
    return [
        *worst_first(judgement.cases),
        *judgement.static,
        *judgement.secondary_changes,
    ]


def worst_first(cases: Iterable[Change[CaseEvidence]]) -> list[Change[CaseEvidence]]:
    """Sort cases: regressions first, wrong results before slowdowns, large changes before small
    ones.
    """

    def weight(case: Change[CaseEvidence]) -> tuple[int, bool, float, str, str]:
        is_wrong = case.reason is Reason.WRONG_RESULT
        return (
            VERDICT_ORDER.index(case.verdict),
            not is_wrong,
            -abs(case.log_ratio),
            case.case_id,
            case.implementation,
        )

    return sorted(cases, key=weight)


def is_row(change: Change[Any]) -> bool:
    """Whether it is worth a row of a table."""
    if isinstance(change.evidence, CaseEvidence):
        return change.verdict is not Verdict.UNCHANGED
    if isinstance(change.evidence, CodeEvidence | AnalysisEvidence):
        return is_listed(change)
    return True


def part_of(change: Change[Any]) -> str:
    """Function, tensor or metric of the implementation; empty for a whole case."""
    if change.subject.part or isinstance(change.evidence, CaseEvidence):
        return change.subject.part
    return metric(change.metric).title


def short_name(change: Change[Any]) -> str:
    """Name without the case."""
    target = ""
    if change.subject.target:
        target = f"for {change.subject.target}"
    return " ".join(filter(None, (change.implementation, part_of(change), target)))


def name_of(change: Change[Any]) -> str:
    return f"{change.case_id} {short_name(change)}"


def text_of(change: Change[Any]) -> str:
    """What changed, in words; untrusted: it may have words of a record."""
    if isinstance(change.evidence, CaseEvidence):
        return _case_text(change)
    if isinstance(change.evidence, CodeEvidence | AnalysisEvidence):
        if change.detail is None:
            return reason_words(change.reason)
        return str(change.detail)
    return change.in_words


def sides_of(change: Change[Any]) -> tuple[str, ...]:
    """A line for the base of a case and one for its head; nothing for other changes."""
    evidence = change.evidence
    if not isinstance(evidence, CaseEvidence):
        return ()
    return (
        f"base: {_side_text(evidence.base, change.base)}",
        f"head: {_side_text(evidence.head, change.head)}",
    )


def claim_text(change: Change[Any]) -> str:
    """What may be claimed about a case, in words; empty for other changes."""
    if not isinstance(change.evidence, CaseEvidence):
        return ""
    return change.evidence.claimed.text


def line_of(lines: Sequence[SourceLine], change: Change[Any]) -> SourceLine | None:
    """Find the line of a change in the head's source."""
    is_compiled = isinstance(change.evidence, CodeEvidence | AnalysisEvidence)
    function = None
    if is_compiled:
        function = change.subject.part
    return find_line(
        lines,
        change.subject.kernel,
        change.implementation,
        function,
    )


def find_line(
    lines: Sequence[SourceLine],
    kernel: str,
    implementation: str,
    function: str | None = None,
) -> SourceLine | None:
    """Find the line of a compiled function; without one, that of the only compiled function or of
    the launcher.
    """
    of_kernel = [
        line for line in lines if (line.kernel, line.implementation) == (kernel, implementation)
    ]
    compiled = [line for line in of_kernel if line.is_jitted]
    # a kernel may compile several functions
    for line in compiled:
        if line.function == function:
            return line
    # the only compiled function is the one meant
    if len(compiled) == 1:
        return compiled[0]
    if not of_kernel:
        return None
    return of_kernel[0]


def _case_text(case: Change[CaseEvidence]) -> str:
    evidence = case.evidence
    parts = [evidence.claimed.text]
    if case.detail is not None:
        parts.append(str(case.detail))
    if evidence.comparison is not None:
        parts.extend(_comparison_in_words(evidence.comparison, case.relative_change))
    if case.cause is not None:
        parts.append(f"cause: {case.cause}, the sources are equal")
    is_explained = evidence.comparison is not None or case.detail is not None
    # the compiler's message is the whole explanation
    needs_message = case.verdict is Verdict.REGRESSED and not is_explained
    if needs_message and evidence.head is not None:
        parts.append(evidence.head.message or "")
    return ": ".join(filter(None, parts))


def _comparison_in_words(comparison: PairedEstimate, relative_change: float) -> Iterator[str]:
    low, high = comparison.relative_interval
    interval = f"95 % interval {low:+.1%} to {high:+.1%}"
    yield f"time {relative_change:+.1%} ({interval})"
    if comparison.change_of_medians is not None:
        yield f"medians {comparison.change_of_medians:+.1%}"
    if comparison.more_blocks is not None:
        yield f"needs about {comparison.more_blocks} more blocks"


def _side_text(side: SideResult | None, time_ns: float | None) -> str:
    if side is None:
        return "not measured"
    if side.failure is not None:
        return f"{side.failure}: {side.message or ''}"
    if time_ns is None:
        return "not timed"
    return metric("median_ns").format(time_ns)
