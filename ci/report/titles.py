"""The title of a judgement: what decides, what it covers, and what was not measured. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from roofwatch.ci.claims.cases import CaseEvidence, is_removed
from roofwatch.ci.claims.reason_words import reason_words
from roofwatch.ci.judge.change import Change
from roofwatch.ci.messages import Remark, count_of
from roofwatch.ci.report.cells import percent
from roofwatch.ci.report.pull_request import PullRequestJudgement
from roofwatch.ci.report.sections import changes, groups_of_times
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
_NOT_SUSPICIOUS = frozenset(
    {
        Reason.NOISE,
        Reason.TOO_FEW_BLOCKS,
        Reason.MULTIPLICITY,
        Reason.THROTTLED,
        Reason.HOST_BOUND,
        Reason.CLOCK_CHANGED,
        Reason.SAME_MACHINE_CODE,
        Reason.SAME_SOURCES,
        Reason.SAME_CODE,
        Reason.NEW_CASE,
    }
)
"""Reasons for which nobody needs a comment."""
_NO_TIMES = frozenset({Reason.NOT_TIMED, Reason.SAME_CODE, Reason.ALREADY_FAILING})


def is_silent(judgement: PullRequestJudgement) -> bool:
    """Return whether no comment is needed: nothing changed, or nothing is suspicious in what is
    undecided.
    """
    # what could not be judged at all is always worth a comment
    if judgement.refusals or judgement.missing or judgement.dependencies is not None:
        return False
    items: list[Change[Any]] = [*judgement.cases, *judgement.static]
    undecided = {item.reason for item in items if item.verdict is Verdict.INCONCLUSIVE}
    if judgement.policy.untimed_passes:
        undecided.discard(Reason.NOT_TIMED)
    if undecided - _NOT_SUSPICIOUS:
        return False
    return not changes(judgement)


def headline(judgement: PullRequestJudgement) -> Remark:
    """Say in one line what decides, what it covers, and what was not measured: for the comment, the
    check and the terminal.
    """
    verdict = judgement.verdict
    # new implementations are named where nothing else is decided
    if verdict is Verdict.INCONCLUSIVE:
        decides = _after_new(judgement, _undecided(judgement))
    elif verdict is Verdict.UNCHANGED:
        decides = _after_new(judgement, _no_change(judgement))
    else:
        decides = _changed(judgement)
    template = decides.template
    untimed = untimed_words(judgement)
    if untimed:
        template += f"; {untimed}"
    # before all else: without it nothing may pass
    if judgement.missing:
        template = f"required but missing: {', '.join(judgement.missing)}; {template}"
    return Remark(template, decides.words)


def word_of(case: Change[CaseEvidence]) -> str:
    """What happened to a case in one or two words, as counts name it."""
    # only a time has a direction that its reason does not say
    if case.reason is not Reason.BEYOND_THRESHOLD:
        return _CASE_WORDS.get(case.reason, str(case.verdict))
    if case.verdict is Verdict.REGRESSED:
        return "slower"
    return "faster"


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
    untimed = judgement.cases_with(Reason.NOT_TIMED)
    for case in judgement.cases_with(Reason.NEW_CASE):
        if case.head is None:
            untimed.append(case)
    if not untimed:
        return ""
    return f"time of {_kernels(untimed)} not measured{_why_untimed(untimed)}"


def _kernels(cases: Iterable[Change[CaseEvidence]]) -> str:
    """Count the kernels of some cases, each once."""
    names = {kernel_of(case.case_id) for case in cases}
    return count_of(len(names), "kernel")


def _benchmarks(cases: Sequence[object]) -> str:
    return count_of(len(cases), "benchmark")


def _why_untimed(cases: Iterable[Change[CaseEvidence]]) -> str:
    """The reasons in parentheses; empty if no runner gave any."""
    reasons = {case.evidence.why_untimed for case in cases}
    # a benchmark that nobody wanted to time has no reason
    reasons.discard("")
    if not reasons:
        return ""
    listed_reasons = ", ".join(sorted(reasons))
    return f" ({listed_reasons})"


# --- undecided


def _undecided(judgement: PullRequestJudgement) -> str:
    """Say what most often kept the judgement from a verdict."""
    # all numbers are those of other code, so none of them is worth a word
    if judgement.cases_with(Reason.FOREIGN_CODE):
        return f"no result: {reason_words(Reason.FOREIGN_CODE)}"
    if judgement.refusals:
        return "no result: the records, or their times, are not comparable"
    items = _judged_items(judgement)
    undecided = [item for item in items if item.verdict is Verdict.INCONCLUSIVE]
    counts = Counter(item.reason for item in undecided)
    # a new case has nothing to compare with, and the same code cannot be slower by itself
    for reason in (Reason.NEW_CASE, Reason.SAME_CODE):
        counts.pop(reason, None)
    untimed_count = counts.pop(Reason.NOT_TIMED, 0)
    # everything that was compared agrees, and only times are missing
    if not counts and untimed_count:
        return _covered(judgement)
    if not counts:
        return _nothing_left(judgement)
    [(reason, count)] = counts.most_common(1)
    words = reason_words(reason)
    if reason is Reason.NOISE:
        words = _noise_words(judgement)
    return f"no result: {words} ({count} of {len(items)})"


def _judged_items(judgement: PullRequestJudgement) -> list[Change[Any]]:
    """The changes of cases and of code, without those of removed cases."""
    items: list[Change[Any]] = list(judgement.compared_cases)
    items.extend(judgement.static)
    # if everything was removed, that is what to name
    if not items:
        items.extend(judgement.cases)
    return items


def _nothing_left(judgement: PullRequestJudgement) -> str:
    """Say why nothing could be compared, although both sides were measured."""
    failing = _still_failing(judgement)
    if failing:
        return f"no result: {failing}"
    removed = [case for case in judgement.cases if is_removed(case)]
    return f"{_benchmarks(removed)} removed, none left to compare"


def _noise_words(judgement: PullRequestJudgement) -> str:
    """Say how many more blocks the noisiest case needs, if any number of them decides it."""
    most_blocks = 0
    for case in judgement.cases_with(Reason.NOISE):
        comparison = case.evidence.comparison
        if comparison is not None:
            most_blocks = max(most_blocks, comparison.more_blocks or 0)
    if not most_blocks:
        return reason_words(Reason.NOISE)
    return f"too noisy, needs about {most_blocks} more blocks"


def _covered(judgement: PullRequestJudgement) -> str:
    """Say what was measured of a change whose time was not."""
    parts = []
    unchanged = judgement.cases_with(Reason.WITHIN_THRESHOLD)
    if unchanged:
        benchmarks = count_of(len(unchanged), "timed benchmark")
        parts.append(f"no change in {benchmarks}")
    parts.append(_accuracy_words(judgement))
    parts.append(_code_words(judgement))
    same_code = judgement.cases_with(Reason.SAME_CODE)
    if same_code:
        parts.append(f"same code in {_benchmarks(same_code)}")
    return "; ".join(parts)


def _accuracy_words(judgement: PullRequestJudgement) -> str:
    """Say how many of the head's benchmarks were checked against their reference."""
    heads = [case.evidence.head for case in judgement.cases]
    # a removed case has no head
    measured_heads = [head for head in heads if head is not None]
    are_correct = [head.accuracy is Outcome.OK for head in measured_heads]
    if all(are_correct):
        return "accuracy ok"
    if not any(are_correct):
        return "accuracy not checked"
    return f"accuracy ok in {sum(are_correct)} of {_benchmarks(are_correct)}"


def _code_words(judgement: PullRequestJudgement) -> str:
    """Say what is known of the code of benchmarks without a time: compiled, else its sources."""
    functions = {
        (change.subject.kernel, change.implementation, change.subject.part)
        for change in judgement.static
        if isinstance(change.evidence, CodeEvidence)
    }
    if functions:
        function_count = count_of(len(functions), "function")
        return f"code of {function_count} changed"
    untimed = judgement.cases_with(Reason.NOT_TIMED)
    edited = [case for case in untimed if case.evidence.claimed.code is CodeState.CHANGED]
    if edited:
        return f"sources of {_kernels(edited)} changed"
    return f"code of {_kernels(untimed)} not compared"


# --- no change


def _no_change(judgement: PullRequestJudgement) -> str:
    """Say what was compared without finding a change."""
    compared = judgement.compared_cases
    if all(case.reason is Reason.NEW_CASE for case in compared):
        return "nothing to compare with"
    timed = [case for case in compared if case.reason not in _NO_TIMES]
    of_same_code = [case for case in compared if case.reason is Reason.SAME_CODE]
    same_code = [case for case in of_same_code if case.log_interval is None]
    noisy = [case for case in of_same_code if case.log_interval is not None]
    parts = []
    if timed:
        # what became better or only differs is no regression, and not nothing
        claim = "no regression"
        if is_silent(judgement):
            claim = "no change"
        parts.append(f"{claim} in {_benchmarks(timed)}")
    # without any time, the check of results is what the judgement stands on
    if same_code and not timed:
        parts.append(_accuracy_words(judgement))
    if same_code:
        why = _why_untimed(same_code)
        parts.append(f"same code in {_benchmarks(same_code)}, time not measured{why}")
    if noisy:
        parts.append(f"same code in {_benchmarks(noisy)}, whose times are too noisy to compare")
    failing = _still_failing(judgement)
    if failing:
        parts.append(failing)
    # a policy lets missing times pass
    if not parts:
        parts.append(_covered(judgement))
    return "; ".join(parts)


def _still_failing(judgement: PullRequestJudgement) -> str:
    """Count what fails on both sides, which is no evidence of anything else."""
    failing = judgement.cases_with(Reason.ALREADY_FAILING)
    if not failing:
        return ""
    return f"{_benchmarks(failing)} still failing"


def _after_new(judgement: PullRequestJudgement, words: str) -> Remark:
    """Name new implementations before the words, the fastest against an existing one first."""
    new_implementations = judgement.new_implementations
    if not new_implementations:
        return Remark(words)
    text = count_of(len(new_implementations), "new implementation")
    # the first rival is the fastest one; new ones do not compete with each other
    with_rivals = [new for new in new_implementations if new.rivals]
    challengers = [new for new in with_rivals if not new.rivals[0].is_new]
    # without a rival of the base there is nothing to be faster than
    if not challengers:
        return Remark(f"{text} · {words}")
    # the fastest against the best that the project had
    best = min(challengers, key=lambda new: new.rivals[0].comparison.log_ratio)
    rival = best.rivals[0]
    change = percent(rival.comparison.relative_change)
    names = (best.kernel, best.implementation, rival.implementation)
    return Remark(f"{text}, {{}} {{}} {change} against {{}} · {words}", names)


# --- changed


def _changed(judgement: PullRequestJudgement) -> Remark:
    """Say what became worse or better: results and times, code, then launches."""
    parts = [_counts(judgement)]
    kernel_names: list[str] = []
    largest = _largest_change(judgement)
    if largest is not None:
        which = "best"
        if largest.verdict is Verdict.REGRESSED:
            which = "worst"
        # a name is untrusted, so it is quoted where the remark is shown
        size = percent(largest.relative_change)
        parts.append(f"{which} {size} ({{}})")
        kernel_names.append(largest.subject.kernel)
    parts.extend(_changed_code(judgement))
    parts.append(_changed_launches(judgement))
    return Remark(" · ".join(filter(None, parts)), tuple(kernel_names))


def _counts(judgement: PullRequestJudgement) -> str:
    """`2 of 12 benchmarks wrong, 1 slower`; empty if no case decides."""
    deciding = list(decisive(judgement).items())
    if not deciding:
        return ""
    compared = judgement.compared_cases
    first_word, first_count = deciding[0]
    benchmarks = _benchmarks(compared)
    counts = [f"{first_count} of {benchmarks} {first_word}"]
    other_counts = deciding[1:]
    counts.extend(f"{count} {word}" for word, count in other_counts)
    return ", ".join(counts)


def _largest_change(judgement: PullRequestJudgement) -> Change[CaseEvidence] | None:
    """The largest change of a time that has the verdict of the whole; None if there is none."""
    for group in groups_of_times(judgement):
        # the first of a group is its largest
        if group[0].verdict is judgement.verdict:
            return group[0]
    return None


def _changed_code(judgement: PullRequestJudgement) -> Iterator[str]:
    """Say how much compiled or analysed code has the verdict of the whole."""
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
        cases = list({change.case_key for change in analysed})
        yield f"offsets or operators of {_benchmarks(cases)} {CODE_WORDS[verdict]}"
    if compiled:
        # a function counts once, for however many targets it was compiled
        functions = {(change.subject.part, change.implementation) for change in compiled}
        target_names = {change.subject.target for change in compiled}
        targets = count_of(len(target_names), "target")
        kernels = count_of(len(functions), "kernel")
        yield f"machine code of {kernels} {CODE_WORDS[verdict]} on {targets}"


def _changed_launches(judgement: PullRequestJudgement) -> str:
    """Say in how many benchmarks a launch takes more or less than before."""
    cases = {
        change.case_key
        for change in judgement.secondary_changes
        if change.verdict is judgement.verdict
    }
    if not cases:
        return ""
    direction = "less"
    if judgement.verdict is Verdict.REGRESSED:
        direction = "more"
    return f"{direction} memory or host time in {_benchmarks(list(cases))}"
