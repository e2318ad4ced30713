"""The tables of a pull-request comment: the open ones have a row per kernel, the folded ones
explain them. Pure.
"""

import math
import statistics
import urllib.parse
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from roofwatch.ci.claims.cases import CaseEvidence, is_removed
from roofwatch.ci.claims.reason_words import reason_words
from roofwatch.ci.judge.change import Change, ChangeSubject
from roofwatch.ci.judge.pairing import SideResult
from roofwatch.ci.messages import Row, Section, code, count_of, listed
from roofwatch.ci.report.change_words import VERDICT_ORDER, find_line, line_of, worst_first
from roofwatch.ci.report.pull_request import PullRequestJudgement
from roofwatch.ci.static.analyses import AnalysisEvidence
from roofwatch.ci.static.comparison import (
    CodeEvidence,
    StaticChange,
    is_listed,
    moved_facts_of,
    word_of,
)
from roofwatch.model.history import Cause
from roofwatch.model.metrics import format_counter, metric
from roofwatch.model.record import SourceLine
from roofwatch.model.verdict import THRESHOLDS, Reason, Verdict

_Changed = TypeVar("_Changed", bound=Change[Any])
_RESULTS = frozenset({Reason.WRONG_RESULT, Reason.FAILED, Reason.FIXED})
_SPACED = str.maketrans(",/", "  ")
"""A browser breaks lines at spaces."""
_MAX_FACTS = 3
_MAX_MESSAGE = 600
_SAME_ERROR = "the same error"
_MAX_STEPS = 5
_MAX_NEW = 20
_TEXT_ON_NEW = (
    "**New implementation.** Time against the other implementations of the head, from the same job."
)
_TEXT_ON_STEPS = (
    "Predicted: share of the step × change of the kernel, with the same overlap as before. "
    "The interval includes the spread of both."
)
_MAX_COUNTERS_OF_A_KERNEL = 6
_MAX_LAUNCHES = 30
_ENVIRONMENT = {
    "runner_class": "runner class",
    "driver_version": "driver",
    "os": "operating system",
    "python_version": "Python",
    "torch_version": "torch",
    "triton_version": "triton",
    "cuda_version": "CUDA",
}


# --- the open tables


def changes(judgement: PullRequestJudgement, source_url: str | None = None) -> list[Section]:
    """Write what to look at, the most severe first, with links to lines below a URL; nothing if
    nothing changed.
    """
    rows = _Rows(judgement, source_url)
    launches = "memory and host time of a launch"
    text_on_code = "Compiler output only, not timed."
    if any(item.cause is Cause.TOOLCHAIN for item in judgement.static):
        text_on_code += " The toolchains differ, which may be the cause."
    text_on_accuracy = "Within tolerance, so no verdict uses this."
    sections = [
        Section("results", ("result", "benchmark", "message"), [*rows.results()]),
        Section(
            "new implementations",
            ("new implementation", "result", "compiled", "time"),
            [*rows.new_implementations()],
            text=_TEXT_ON_NEW if judgement.new_implementations else "",
        ),
        Section("times", ("time", "benchmark", "base → head"), [*rows.times()]),
        Section(
            "steps of workloads",
            ("step", "workload", "because of"),
            [*rows.steps()],
            text=_TEXT_ON_STEPS,
        ),
        Section(
            "machine code",
            ("machine code", "benchmark", "targets"),
            [*rows.machine_code()],
            text=text_on_code,
        ),
        Section(launches, ("launch", "benchmark", "base → head"), [*rows.launches()]),
        Section(
            "accuracy",
            ("error", "benchmark", "base → head"),
            [*rows.accuracy()],
            text=text_on_accuracy,
        ),
        Section("autotuning", ("autotuning", "benchmark"), [*rows.autotuning()]),
    ]
    return [section for section in sections if section.rows]


@dataclass(frozen=True)
class _Rows:
    judgement: PullRequestJudgement
    source_url: str | None

    def results(self) -> Iterator[Row]:
        changed = worst_first(
            case for case in self.judgement.cases if case.reason in _RESULTS or is_removed(case)
        )
        shown: set[str] = set()
        for group in _by_kernel(changed, lambda case: case.reason):
            if is_removed(group[0]):
                yield group[0].evidence.claimed.text, self._benchmark(group), ""
                continue
            message = _message(group[0])
            text = _SAME_ERROR if message in shown else message
            shown |= {message} - {""}
            yield _bold(group[0], _outcome(group[0])), self._benchmark(group), text

    def new_implementations(self) -> Iterator[Row]:
        for one in self.judgement.new_implementations[:_MAX_NEW]:
            name = f"{code(one.kernel)} {code(one.implementation)}"
            line = find_line(self.judgement.source_lines, one.kernel, one.implementation)
            if line is not None:
                name = self._linked(name, line)
            shape = one.case_id.partition("/")[2]
            name += f"<br>{code(shape.translate(_SPACED))}"
            if len(one.case_ids) > 1:
                name += f"<br>and {count_of(len(one.case_ids) - 1, 'more case')}"
            compiled = [
                f"{words.quoted(code)} ({listed(map(code, targets))})"
                for words, targets in one.compiled
            ]
            times = [words.quoted(code) for words in one.times]
            yield name, one.result, "<br>".join(compiled), "<br>".join(times)

    def times(self) -> Iterator[Row]:
        for group in groups_of_times(self.judgement):
            worst = group[0]
            change = _bold(worst, percent(worst.relative_change)) + _half_width(worst)
            times = _both("median_ns", worst.base, worst.head) + _medians_note(worst)
            roof = _roofline(worst)
            if roof:
                times += f"<br>{roof} of roofline"
            names = self._benchmark(group, [case.log_ratio for case in group])
            yield change, names, times

    def steps(self) -> Iterator[Row]:
        for one in self.judgement.step_predictions[:_MAX_STEPS]:
            kernel = f"{code(one.kernel)} {code(one.implementation)} {percent(one.kernel_change)}"
            yield (
                f"{percent(one.step_change)} ({percent(one.low)} to {percent(one.high)})",
                f"{code(one.workload_case_id.translate(_SPACED))} "
                f"{code(one.workload_implementation)}",
                f"{kernel}, {one.share:.1%} of the step",
            )

    def machine_code(self) -> Iterator[Row]:
        # a kernel that cannot be imported fails every check and compilation with one message
        failures = {
            case.evidence.head.message
            for case in self.judgement.cases
            if case.reason is Reason.FAILED and case.evidence.head and case.evidence.head.message
        }
        for group in _by_kernel(
            _listed_code(self.judgement), lambda change: (change.subject.part, word_of(change))
        ):
            targets = listed(dict.fromkeys(code(change.subject.target) for change in group))
            yield _code_change(group[0], failures), self._benchmark(group), targets

    def launches(self) -> Iterator[Row]:
        for group in _by_kernel(
            self.judgement.secondary_changes, lambda one: (one.metric, one.verdict)
        ):
            worst = group[0]
            size = (
                "nothing before"
                if math.isinf(worst.relative_change)
                else percent(worst.relative_change)
            )
            names = self._benchmark(group, [one.log_ratio for one in group])
            change = f"{_bold(worst, size)} {metric(worst.metric).title}"
            yield change, names, _both(worst.metric, worst.base, worst.head)

    def accuracy(self) -> Iterator[Row]:
        for group in _by_kernel(self.judgement.accuracy_changes, lambda one: one.reason):
            worst = group[0]
            factor = f"× {math.exp(worst.log_ratio):.2g}"
            if math.isinf(worst.log_ratio):
                factor = "no longer exact" if worst.head else "exact now"
            errors = f"{_both('rmse_ratio', worst.base, worst.head)} ({code(worst.subject.part)})"
            yield f"{factor}, {reason_words(worst.reason)}", self._benchmark(group), errors

    def autotuning(self) -> Iterator[Row]:
        for case in self.judgement.cases:
            for flip in case.evidence.flips if case.verdict is not Verdict.UNCHANGED else ():
                yield flip.quoted(code), self._benchmark([case])

    def _linked(self, name: str, line: SourceLine) -> str:
        if self.source_url is None:
            return name
        return f"[{name}]({self.source_url}/{urllib.parse.quote(line.file)}#L{line.line})"

    def _benchmark(self, group: Sequence[Change[Any]], log_ratios: Sequence[float] = ()) -> str:
        """Name a kernel with its worst case, and what the others have in common with it."""
        worst = group[0]
        kernel, _, shape = worst.case_id.partition("/")
        is_compiled = isinstance(worst.evidence, CodeEvidence | AnalysisEvidence)
        function = worst.subject.part if is_compiled else None
        name = code(kernel) if function is None else f"{code(function)} in {code(kernel)}"
        line = line_of(self.judgement.source_lines, worst)
        if line is not None:
            name = self._linked(name, line)
        text = f"{name} {code(worst.implementation)}<br>{code(shape.translate(_SPACED))}"
        case_count = len({one.case_id for one in group})
        if case_count > 1:
            text += f"<br>and {count_of(case_count - 1, 'more case')}"
            if log_ratios and all(map(math.isfinite, log_ratios)):
                text += f", median {percent(math.expm1(statistics.median(log_ratios)))}"
        return text


def groups_of_times(judgement: PullRequestJudgement) -> list[list[Change[CaseEvidence]]]:
    """Group the changed times by kernel, implementation and verdict, the largest change first."""
    timed = [
        case
        for case in judgement.cases
        if case.reason is Reason.BEYOND_THRESHOLD and case.log_interval is not None
    ]
    return _by_kernel(worst_first(timed), lambda case: case.verdict)


def _listed_code(judgement: PullRequestJudgement) -> list[StaticChange]:
    """Return the changes of machine code, the most severe first."""
    return sorted(filter(is_listed, judgement.static), key=_severity)


def _severity(change: StaticChange) -> tuple[int, float, str, str]:
    size = 0.0
    for base, head in list(moved_facts_of(change).values())[:1]:
        size = abs(head - base)
    subject = change.subject
    return VERDICT_ORDER.index(change.verdict), -size, subject.part, subject.case_id


def _by_kernel(
    items: Iterable[_Changed], kind: Callable[[_Changed], Hashable]
) -> list[list[_Changed]]:
    """Group by kernel, implementation and a further property;
    the first of each group is its worst.
    """
    groups: dict[Hashable, list[_Changed]] = defaultdict(list)
    for item in items:
        groups[item.case_id.partition("/")[0], item.implementation, kind(item)].append(item)
    return list(groups.values())


# --- the folded tables


def background(judgement: PullRequestJudgement) -> list[Section]:
    sections = [
        _case_section(judgement),
        _machine_code_section(judgement),
        _evidence_section(judgement),
        _environment_section(judgement),
    ]
    return [section for section in sections if section.rows]


def _case_section(judgement: PullRequestJudgement) -> Section:
    """List the cases that no open table names."""
    slower = [case for group in groups_of_times(judgement) if len(group) > 1 for case in group]
    described = {case.subject.case_key for case in judgement.cases if is_removed(case)}
    for new in judgement.new_implementations:
        described |= {(case_id, new.implementation) for case_id in new.case_ids}
    others = [
        case
        for case in worst_first(judgement.cases)
        if (case.verdict is Verdict.INCONCLUSIVE and case.subject.case_key not in described)
        or case.reason is Reason.ALREADY_FAILING
    ]
    rows = []
    for case in (*slower, *others):
        change, times = "", _both("median_ns", case.base, case.head)
        interval = case.relative_interval
        if interval is not None:
            low, high = interval
            times += _medians_note(case)
            change = f"{case.relative_change:+.1%}"
            if math.isfinite(low) and math.isfinite(high):
                change += f" ({low:+.1%} to {high:+.1%})"
        rows.append((change, _names(case), times, _roofline(case), _why(case)))
    columns = ("change (95% interval)", "benchmark", "base → head", "% of roofline", "reason")
    return Section(f"{count_of(len(rows), 'case')} in full", columns, rows, is_folded=True)


def _machine_code_section(judgement: PullRequestJudgement) -> Section:
    """Write why changes matter, once for all targets with the same reason."""
    targets: dict[tuple[str, str], list[str]] = defaultdict(list)
    for change in _listed_code(judgement):
        if change.detail is None or not isinstance(change.evidence, CodeEvidence):
            continue
        if change.evidence.has_compiled:
            names = f"{code(change.subject.part)} {_names(change)}"
            targets[names, change.detail.quoted(code)].append(code(change.subject.target))
    rows = [(names, why, listed(titles)) for (names, why), titles in targets.items()]
    return Section(
        "Why the machine code matters", ("kernel", "change", "targets"), rows, is_folded=True
    )


def _evidence_section(judgement: PullRequestJudgement) -> Section:
    """List bottlenecks of slower cases, changed launches and changed hardware counters."""
    rows = []
    for change in judgement.limit_changes:
        limits = dict.fromkeys((str(change.evidence.base), str(change.evidence.head)))
        remarks = filter(None, (change.detail, *change.evidence.news))
        findings = [remark.quoted(code) for remark in remarks]
        rows.append(("bottleneck", _names(change), f"{' → '.join(limits)}: {'; '.join(findings)}"))
    for launch in judgement.launch_changes[:_MAX_LAUNCHES]:
        text = "" if launch.detail is None else launch.detail.quoted(code)
        share = f"{launch.evidence.share:.1%} of the call"
        rows.append(("launches", _names(launch), f"{text} ({share})"))
    counts_of_kernels: Counter[ChangeSubject] = Counter()
    for counter in judgement.counter_changes:
        counts_of_kernels[counter.subject] += 1
        if counts_of_kernels[counter.subject] <= _MAX_COUNTERS_OF_A_KERNEL:
            size = "new"
            if math.isfinite(counter.relative_change):
                size = f"{counter.relative_change:+.1%}"
            base, head = (format_counter(counter.metric, value) for value in counter.values)
            text = f"{code(counter.subject.part)}: {base} → {head} ({size})"
            rows.append((code(counter.metric), _names(counter), text))
    columns, text = (
        ("evidence", "benchmark", "base → head"),
        "Heuristic; does not affect the result.",
    )
    return Section("Likely bottleneck", columns, rows, is_folded=True, text=text)


def _environment_section(judgement: PullRequestJudgement) -> Section:
    rows = []
    for name, title in _ENVIRONMENT.items():
        sides = [
            getattr(side, name) for side in (judgement.base_environment, judgement.head_environment)
        ]
        if sides != [None, None]:
            rows.append((title, *("–" if value is None else code(str(value)) for value in sides)))
    floor = "" if judgement.noise_floor is None else f"{judgement.noise_floor.remark.quoted(code)}."
    text = " ".join(filter(None, (_intervals(judgement), _left_out(judgement), floor)))
    return Section("Environment and noise", ("", "base", "head"), rows, is_folded=True, text=text)


def _intervals(judgement: PullRequestJudgement) -> str:
    intervals = [case.log_interval for case in judgement.cases if case.log_interval is not None]
    halves = [(high - low) / 2 for low, high in intervals if math.isfinite(high)]
    text = (
        f"Flagged only if the whole 95% confidence interval is beyond "
        f"±{THRESHOLDS.relative_change:.0%}"
    )
    text += f" (false discovery rate {THRESHOLDS.false_discovery_rate:.0%})."
    if not judgement.is_paired:
        text += " The records are not a pair, so the noise between them is unknown."
    elif halves:
        half = math.expm1(statistics.median(halves))
        text += (
            f" {count_of(len(halves), 'comparison')}: median half-width of the interval "
            f"±{half:.1%}."
        )
    if judgement.detectable_change is not None:
        text += f" Detects slowdowns ≥ {judgement.detectable_change:.1%} with 80% power."
    return text


def _left_out(judgement: PullRequestJudgement) -> str:
    pairs = [pair for case in judgement.cases for pair in case.evidence.left_out]
    reasons = sorted({reason for pair in pairs for reason in (*pair.base, *pair.head)})
    count = count_of(len(pairs), "block pair")
    return (
        f"{count} excluded, device throttled or shared: {listed(map(code, reasons))}."
        if pairs
        else ""
    )


# --- cells


def _half_width(case: Change[CaseEvidence]) -> str:
    if case.relative_interval is None:
        return ""
    low, high = case.relative_interval
    return f" ±{(high - low) / 2:.1%}" if math.isfinite(high - low) else ""


def _medians_note(case: Change[CaseEvidence]) -> str:
    """Explain times whose ratio is not the change beside them."""
    comparison = case.evidence.comparison
    if comparison is None or comparison.change_of_medians is None:
        return ""
    return (
        f"<br>medians {percent(comparison.change_of_medians)}; the change is of neighbouring blocks"
    )


def percent(change: float) -> str:
    """Write a relative change with two or three digits: `+8.0%`, `+117%`."""
    return f"{change:+.1%}" if abs(change) < 0.0995 else f"{change:+,.0%}"


def _both(name: str, base: float | None, head: float | None) -> str:
    return " → ".join(
        "–" if value is None else metric(name).format(value) for value in (base, head)
    )


def _roofline(case: Change[CaseEvidence]) -> str:
    base, head = case.evidence.base, case.evidence.head
    if base is None or head is None or base.utilisation is None or head.utilisation is None:
        return ""
    return " → ".join(dict.fromkeys((f"{base.utilisation:.0%}", f"{head.utilisation:.0%}")))


def _outcome(case: Change[CaseEvidence]) -> str:
    base, head = _outcome_of(case.evidence.base), _outcome_of(case.evidence.head)
    return head if base in {head, "ok"} else f"{base} → {head}"


def _outcome_of(side: SideResult | None) -> str:
    return "–" if side is None else str(side.failure or side.measured or side.accuracy)


def _message(case: Change[CaseEvidence]) -> str:
    if case.detail is not None:
        return case.detail.quoted(code)
    side = case.evidence.base if case.reason is Reason.FIXED else case.evidence.head
    return code(side.message, limit=_MAX_MESSAGE) if side is not None and side.message else ""


def _bold(item: Change[Any], text: str) -> str:
    return f"**{text}**" if item.verdict is Verdict.REGRESSED else text


def _code_change(change: StaticChange, failures: Set[str]) -> str:
    """Write what changed in a function, without a message that is one of the failures above."""
    word = word_of(change)
    if change.verdict is Verdict.REGRESSED or change.reason is Reason.TARGET_LOST:
        word = f"**{word}**"
    facts = list(moved_facts_of(change).items())[:_MAX_FACTS]
    if facts:
        texts = [f"{metric(name).title} {_both(name, *values)}" for name, values in facts]
        return f"{word}: {', '.join(texts)}"
    detail = ""
    if change.detail is not None:
        detail = change.detail.quoted(partial(code, limit=_MAX_MESSAGE))
    if isinstance(change.evidence, AnalysisEvidence):
        return f"{word}: {detail}"
    base, head = change.evidence.base, change.evidence.head
    if not change.evidence.has_compiled:
        outcomes = ["–" if side is None else str(side.outcome) for side in (base, head)]
        word += f": {' → '.join(outcomes)}"
    is_shown_above = head is not None and head.message in failures
    return word if is_shown_above or not detail else f"{word}: {detail}"


def _names(item: Change[Any]) -> str:
    return f"{code(item.case_id)} {code(item.implementation)}"


def _why(case: Change[CaseEvidence]) -> str:
    claimed = case.evidence.claimed.text
    if case.reason is Reason.ALREADY_FAILING:
        return f"{claimed}: {_outcome(case)} {_message(case)}"
    if case.detail is not None:
        return f"{claimed}: {case.detail.quoted(code)}"
    comparison = case.evidence.comparison
    if case.reason is Reason.NOISE and comparison is not None and comparison.more_blocks:
        more = f"needs about {comparison.more_blocks} more"
        return f"{claimed} (±{comparison.threshold:.0%}): {more}"
    if case.cause is not None:
        return f"{claimed}; cause: {case.cause}"
    return claimed
