"""The title of a judgement: what decides, what it covers, and what was not measured. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from roofwatch.ci.claims.cases import CaseEvidence, is_removed
from roofwatch.ci.claims.reason_words import reason_words
from roofwatch.ci.judge.change import Change
from roofwatch.ci.messages import Remark, count_of
from roofwatch.ci.report.cells import percent
from roofwatch.ci.report.pull_request import PullRequestJudgement
from roofwatch.ci.report.sections import groups_of_times
from roofwatch.ci.static.comparison import CodeEvidence, StaticChange
from roofwatch.model.case_key import kernel_of
from roofwatch.model.claim import CodeState
from roofwatch.model.machine import Outcome
from roofwatch.model.verdict import Reason, Verdict

CODE_WORDS = {
    Verdict.REGRESSED: "worse",
    Verdict.INCONCLUSIVE: "lost",
    Verdict.IMPROVED: "better",
    Verdict.UNCHANGED: "changed",
    Verdict.PREDICTED_SLOWER: "predicted slower",
    Verdict.PREDICTED_FASTER: "predicted faster",
}
_CASE_WORDS = {
    Reason.WRONG_RESULT: "wrong",
    Reason.FAILED: "failing",
    Reason.FIXED: "fixed",
    Reason.ALREADY_FAILING: "still failing",
    Reason.NEW_CASE: "new",
    Reason.REMOVED_CASE: "removed",
    Reason.NOISE: "too noisy",
    Reason.TOO_FEW_BLOCKS: "too noisy",
    Reason.NOT_TIMED: "not timed",
    Reason.SAME_CODE: "same code",
}
_NO_TIMES = frozenset({Reason.NOT_TIMED, Reason.SAME_CODE, Reason.ALREADY_FAILING})


def headline(judgement: PullRequestJudgement, *, is_quiet: bool) -> Remark:
    """Say in one line what decides, with numbers: for the comment, the check and the terminal.

    Args:
        judgement: To be named.
        is_quiet: Nothing at all changed.
    """
    verdict = judgement.verdict
    if verdict is Verdict.INCONCLUSIVE:
        decides = _after_new(judgement, _undecided(judgement))
    elif verdict is Verdict.UNCHANGED:
        decides = _after_new(judgement, _no_change(judgement, is_quiet=is_quiet))
    else:
        decides = _changed(judgement)
    template = "; ".join(filter(None, (decides.template, untimed_words(judgement))))
    # before all else: without it nothing may pass
    if judgement.missing:
        template = f"required but missing: {', '.join(judgement.missing)}; {template}"
    return Remark(template, decides.words)


def word_of(case: Change[CaseEvidence]) -> str:
    if case.reason is Reason.BEYOND_THRESHOLD:
        return "slower" if case.verdict is Verdict.REGRESSED else "faster"
    return _CASE_WORDS.get(case.reason, str(case.verdict))


def decisive(judgement: PullRequestJudgement) -> Counter[str]:
    """Count the cases that make the verdict regressed or improved, by word."""
    if judgement.verdict not in {Verdict.REGRESSED, Verdict.IMPROVED}:
        return Counter()
    deciding = [case for case in judgement.cases if case.verdict is judgement.verdict]
    # results before times
    ordered = sorted(deciding, key=lambda case: case.reason is Reason.BEYOND_THRESHOLD)
    return Counter(map(word_of, ordered))


def untimed_words(judgement: PullRequestJudgement) -> str:
    """Name the kernels whose time may have changed and was not measured; empty if there are none.

    New benchmarks count too.
    """
    missing = [case for case in judgement.cases if case.reason is Reason.NOT_TIMED]
    missing += [
        case for case in judgement.cases if case.reason is Reason.NEW_CASE and case.head is None
    ]
    if not missing:
        return ""
    return f"time of {_kernels(missing)} not measured{_why(missing)}"


def _kernels(cases: Iterable[Change[CaseEvidence]]) -> str:
    return count_of(len({kernel_of(case.case_id) for case in cases}), "kernel")


def _why(cases: Iterable[Change[CaseEvidence]]) -> str:
    reasons = sorted({case.evidence.why_untimed for case in cases} - {""})
    if not reasons:
        return ""
    return f" ({', '.join(reasons)})"


# --- undecided


def _undecided(judgement: PullRequestJudgement) -> str:
    if any(case.reason is Reason.FOREIGN_CODE for case in judgement.cases):
        return f"no result: {reason_words(Reason.FOREIGN_CODE)}"
    if judgement.refusals:
        return "no result: the records, or their times, are not comparable"
    compared = [case for case in judgement.cases if not is_removed(case)]
    items: list[Change[Any]] = [*compared, *judgement.static]
    # if everything was removed, that is what to name
    items = items or [*judgement.cases]
    undecided = [
        item
        for item in items
        if item.verdict is Verdict.INCONCLUSIVE and item.reason is not Reason.NEW_CASE
    ]
    counts = Counter(item.reason for item in undecided)
    untimed_count = counts.pop(Reason.NOT_TIMED, 0)
    if not counts and untimed_count:
        return _covered(judgement)
    if not counts:
        return _nothing_left(judgement)
    reason, count = counts.most_common(1)[0]
    words = reason_words(reason)
    # the way out is known: more blocks
    if reason is Reason.NOISE and (more_blocks := _more_blocks(judgement)):
        words = f"too noisy, needs about {more_blocks} more blocks"
    return f"no result: {words} ({count} of {len(items)})"


def _nothing_left(judgement: PullRequestJudgement) -> str:
    """Say why nothing could be compared, although both sides were measured."""
    if failing := _still_failing(judgement):
        return f"no result: {failing}"
    removed_count = sum(map(is_removed, judgement.cases))
    return f"{count_of(removed_count, 'benchmark')} removed, none left to compare"


def _more_blocks(judgement: PullRequestJudgement) -> int:
    """The most blocks that a noisy case still needs."""
    noisy = [case for case in judgement.cases if case.reason is Reason.NOISE]
    comparisons = [case.evidence.comparison for case in noisy]
    return max((comparison.more_blocks or 0 for comparison in comparisons if comparison), default=0)


def _covered(judgement: PullRequestJudgement) -> str:
    """Say what was measured of a change whose time was not."""
    timed_count = sum(case.reason is Reason.WITHIN_THRESHOLD for case in judgement.cases)
    same = [case for case in judgement.cases if case.reason is Reason.SAME_CODE]
    parts = [
        f"no change in {count_of(timed_count, 'timed benchmark')}" if timed_count else "",
        _accuracy_words(judgement),
        _code_words(judgement),
        f"same code in {count_of(len(same), 'benchmark')}" if same else "",
    ]
    return "; ".join(filter(None, parts))


def _accuracy_words(judgement: PullRequestJudgement) -> str:
    heads = [case.evidence.head for case in judgement.cases]
    checked = [head.accuracy is Outcome.OK for head in heads if head is not None]
    if all(checked):
        return "accuracy ok"
    if not any(checked):
        return "accuracy not checked"
    return f"accuracy ok in {sum(checked)} of {count_of(len(checked), 'benchmark')}"


def _code_words(judgement: PullRequestJudgement) -> str:
    compiled = [change for change in judgement.static if isinstance(change.evidence, CodeEvidence)]
    functions = {
        (change.subject.kernel, change.implementation, change.subject.part) for change in compiled
    }
    if functions:
        return f"code of {count_of(len(functions), 'function')} changed"
    untimed = [case for case in judgement.cases if case.reason is Reason.NOT_TIMED]
    changed = [case for case in untimed if case.evidence.claimed.code is CodeState.CHANGED]
    if changed:
        return f"sources of {_kernels(changed)} changed"
    return f"code of {_kernels(untimed)} not compared"


# --- no change


def _no_change(judgement: PullRequestJudgement, *, is_quiet: bool) -> str:
    compared = [case for case in judgement.cases if not is_removed(case)]
    if all(case.reason is Reason.NEW_CASE for case in compared):
        return "nothing to compare with"
    word = "no change" if is_quiet else "no regression"
    timed = [case for case in compared if case.reason not in _NO_TIMES]
    same = [case for case in compared if case.reason is Reason.SAME_CODE]
    parts = []
    if timed:
        parts = [f"{word} in {count_of(len(timed), 'benchmark')}"]
    if same:
        if not timed:
            parts.append(_accuracy_words(judgement))
        count = count_of(len(same), "benchmark")
        parts.append(f"same code in {count}, time not measured{_why(same)}")
    if failing := _still_failing(judgement):
        parts.append(failing)
    if not parts:  # a policy lets missing times pass
        parts = [_covered(judgement)]
    return "; ".join(parts)


def _still_failing(judgement: PullRequestJudgement) -> str:
    """Count what fails on both sides, which is no evidence of anything else."""
    count = sum(case.reason is Reason.ALREADY_FAILING for case in judgement.cases)
    if not count:
        return ""
    return f"{count_of(count, 'benchmark')} still failing"


def _after_new(judgement: PullRequestJudgement, words: str) -> Remark:
    """Name new implementations before the words, the fastest against an existing one first."""
    listed = judgement.new_implementations
    if not listed:
        return Remark(words)
    text = count_of(len(listed), "new implementation")
    existing = [new for new in listed if new.rivals and not new.rivals[0].is_new]
    # no existing implementation to beat
    if not existing:
        return Remark(f"{text} · {words}")
    best = min(existing, key=lambda new: new.rivals[0].comparison.log_ratio)
    rival = best.rivals[0]
    change = percent(rival.comparison.relative_change)
    names = (best.kernel, best.implementation, rival.implementation)
    return Remark(f"{text}, {{}} {{}} {change} against {{}} · {words}", names)


# --- changed


def _changed(judgement: PullRequestJudgement) -> Remark:
    """Say what became worse or better: results and times, code, then launches."""
    largest, kernel_names = _largest_change(judgement)
    parts = [_counts(judgement), largest, *_changed_code(judgement), _changed_launches(judgement)]
    return Remark(" · ".join(filter(None, parts)), kernel_names)


def _counts(judgement: PullRequestJudgement) -> str:
    decided = list(decisive(judgement).items())
    if not decided:
        return ""
    compared = [case for case in judgement.cases if not is_removed(case)]
    total = count_of(len(compared), "benchmark")
    first_word, first_count = decided[0]
    counts = [f"{first_count} of {total} {first_word}"]
    counts += [f"{count} {word}" for word, count in decided[1:]]
    return ", ".join(counts)


def _largest_change(judgement: PullRequestJudgement) -> tuple[str, tuple[str, ...]]:
    """The largest change of a time, and the kernel's name, which is untrusted."""
    verdict = judgement.verdict
    for group in groups_of_times(judgement):
        # the first of a group is its largest
        largest = group[0]
        if largest.verdict is verdict:
            which = "worst" if verdict is Verdict.REGRESSED else "best"
            text = f"{which} {percent(largest.relative_change)} ({{}})"
            return text, (largest.subject.kernel,)
    return "", ()


def _changed_code(judgement: PullRequestJudgement) -> Iterator[str]:
    verdict = judgement.verdict
    compiled: list[StaticChange] = []
    analysed: list[StaticChange] = []
    for change in judgement.static:
        if change.verdict is not verdict:
            continue
        # readers know machine code from analyses without a compiler
        if isinstance(change.evidence, CodeEvidence):
            compiled.append(change)
        else:
            analysed.append(change)
    if analysed:
        cases = {change.case_key for change in analysed}
        benchmarks = count_of(len(cases), "benchmark")
        yield f"offsets or operators of {benchmarks} {CODE_WORDS[verdict]}"
    if compiled:
        functions = {(change.subject.part, change.implementation) for change in compiled}
        target_names = {change.subject.target for change in compiled}
        targets = count_of(len(target_names), "target")
        kernels = count_of(len(functions), "kernel")
        yield f"machine code of {kernels} {CODE_WORDS[verdict]} on {targets}"


def _changed_launches(judgement: PullRequestJudgement) -> str:
    cases = {
        change.case_key
        for change in judgement.secondary_changes
        if change.verdict is judgement.verdict
    }
    if not cases:
        return ""
    direction = "more" if judgement.verdict is Verdict.REGRESSED else "less"
    return f"{direction} memory or host time in {count_of(len(cases), 'benchmark')}"
