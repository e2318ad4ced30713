"""The open tables of a pull-request comment, with a row per kernel. Pure."""

import math
import statistics
import urllib.parse
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from roofwatch.ci.claims.cases import CaseEvidence, is_removed
from roofwatch.ci.claims.reason_words import reason_words
from roofwatch.ci.judge.change import Change
from roofwatch.ci.messages import Row, Section, cell_code, code, count_of, listed
from roofwatch.ci.report.cells import (
    bold,
    both_sides,
    code_change,
    half_width,
    medians_note,
    message_of,
    outcome_text,
    percent,
    roofline_text,
)
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
from roofwatch.model.case_key import kernel_of
from roofwatch.model.history import Cause
from roofwatch.model.metrics import metric
from roofwatch.model.record import SourceLine
from roofwatch.model.verdict import Reason, Verdict

_Changed = TypeVar("_Changed", bound=Change[Any])
_RESULTS = frozenset({Reason.WRONG_RESULT, Reason.FAILED, Reason.FIXED})
_SPACED = str.maketrans(",/", "  ")
"""A browser breaks lines at spaces."""
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


# --- the open tables


def changes(judgement: PullRequestJudgement, source_url: str | None = None) -> list[Section]:
    """Write what to look at, the most severe first, with links to lines below a URL; nothing if
    nothing changed.
    """
    rows = _Rows(judgement, source_url)
    launches = "memory and host time of a launch"
    text_on_code = "Compiler output only, not timed."
    # a reader should look at the compiler before the commit
    if any(item.cause is Cause.TOOLCHAIN for item in judgement.static):
        text_on_code += " The toolchains differ, which may be the cause."
    text_on_accuracy = "Within tolerance, so no verdict uses this."
    sections = [
        Section(title="results", columns=("result", "benchmark"), rows=[*rows.results()]),
        Section(
            title="new implementations",
            columns=("new", "result"),
            rows=[*rows.new_implementations()],
            text=_TEXT_ON_NEW if judgement.new_implementations else "",
        ),
        Section(title="times", columns=("time", "benchmark"), rows=[*rows.times()]),
        Section(
            title="steps of workloads",
            columns=("step", "workload"),
            rows=[*rows.steps()],
            text=_TEXT_ON_STEPS,
        ),
        Section(
            title="machine code",
            columns=("machine code", "benchmark"),
            rows=[*rows.machine_code()],
            text=text_on_code,
        ),
        Section(title=launches, columns=("launch", "benchmark"), rows=[*rows.launches()]),
        Section(
            title="accuracy",
            columns=("error", "benchmark", "base → head"),
            rows=[*rows.accuracy()],
            is_folded=True,
            text=text_on_accuracy,
        ),
        Section(
            title="autotuning",
            columns=("autotuning", "benchmark"),
            rows=[*rows.autotuning()],
            is_folded=True,
        ),
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
        messages: set[str] = set()
        for group in _by_kernel(changed, lambda case: case.reason):
            # a removed case has no result, only what it had
            if is_removed(group[0]):
                yield group[0].evidence.claimed.text, self._benchmark(group)
                continue
            message = message_of(group[0])
            # one cause often fails all cases with one message
            text = _SAME_ERROR if message in messages else message
            messages |= {message} - {""}
            result = bold(group[0], outcome_text(group[0]))
            yield result, _lines(self._benchmark(group), text)

    def new_implementations(self) -> Iterator[Row]:
        for new in self.judgement.new_implementations[:_MAX_NEW]:
            name = f"{cell_code(new.kernel)} {cell_code(new.implementation)}"
            line = find_line(self.judgement.source_lines, new.kernel, new.implementation)
            if line is not None:
                name = self._linked(name, line)
            shape = new.case_id.partition("/")[2]
            name += f"<br>{cell_code(shape.translate(_SPACED))}"
            if len(new.case_ids) > 1:
                name += f"<br>and {count_of(len(new.case_ids) - 1, 'more case')}"
            compiled = [
                f"{words.quoted(code)} ({listed(map(code, targets))})"
                for words, targets in new.compiled
            ]
            times = [words.quoted(code) for words in new.times]
            yield name, _lines(new.result, *compiled, *times)

    def times(self) -> Iterator[Row]:
        for group in groups_of_times(self.judgement):
            worst = group[0]
            change = bold(worst, percent(worst.relative_change)) + half_width(worst)
            times = both_sides(name="median_ns", base=worst.base, head=worst.head) + medians_note(
                worst
            )
            roof = roofline_text(worst)
            names = self._benchmark(group, [case.log_ratio for case in group])
            yield _lines(change, times, f"{roof} of roofline" if roof else ""), names

    def steps(self) -> Iterator[Row]:
        for step in self.judgement.step_predictions[:_MAX_STEPS]:
            source = step.evidence
            low, high = step.interval
            kernel = f"{cell_code(source.kernel)} {cell_code(source.implementation)}"
            workload = (
                f"{cell_code(step.case_id.translate(_SPACED))} {cell_code(step.implementation)}"
            )
            yield (
                f"{percent(step.relative_change)} ({percent(low)} to {percent(high)})",
                _lines(
                    workload,
                    f"because of {kernel} {percent(source.kernel_change)}",
                    f"{source.share:.1%} of the step",
                ),
            )

    def machine_code(self) -> Iterator[Row]:
        # a kernel that cannot be imported fails every check and compilation with one message
        failures = {
            case.evidence.head.message
            for case in self.judgement.cases
            if case.reason is Reason.FAILED and case.evidence.head and case.evidence.head.message
        }
        for group in _by_kernel(
            listed_code(self.judgement), lambda change: (change.subject.part, word_of(change))
        ):
            targets = listed(dict.fromkeys(cell_code(change.subject.target) for change in group))
            yield code_change(group[0], failures), _lines(self._benchmark(group), targets)

    def launches(self) -> Iterator[Row]:
        for group in _by_kernel(
            self.judgement.secondary_changes, lambda item: (item.metric, item.verdict)
        ):
            worst = group[0]
            size = "nothing before"
            if not math.isinf(worst.relative_change):
                size = percent(worst.relative_change)
            names = self._benchmark(group, [item.log_ratio for item in group])
            change = f"{bold(worst, size)} {metric(worst.metric).title}"
            yield _lines(change, both_sides(worst.metric, worst.base, worst.head)), names

    def accuracy(self) -> Iterator[Row]:
        for group in _by_kernel(self.judgement.accuracy_changes, lambda item: item.reason):
            worst = group[0]
            factor = f"× {math.exp(worst.log_ratio):.2g}"
            if math.isinf(worst.log_ratio):
                factor = "no longer exact" if worst.head else "exact now"
            errors = both_sides(name="rmse_ratio", base=worst.base, head=worst.head)
            errors += f" ({code(worst.subject.part)})"
            yield f"{factor}, {reason_words(worst.reason)}", self._benchmark(group), errors

    def autotuning(self) -> Iterator[Row]:
        for case in self.judgement.cases:
            # another choice matters only where the time changed
            if case.verdict is Verdict.UNCHANGED:
                continue
            for flip in case.evidence.flips:
                yield flip.quoted(code), self._benchmark([case])

    def _linked(self, name: str, line: SourceLine) -> str:
        if self.source_url is None:
            return name
        path = urllib.parse.quote(line.file)
        return f"[{name}]({self.source_url}/{path}#L{line.line})"

    def _benchmark(self, group: Sequence[Change[Any]], log_ratios: Sequence[float] = ()) -> str:
        """Name a kernel with its worst case, and what the others have in common with it."""
        worst = group[0]
        kernel, _, shape = worst.case_id.partition("/")
        is_compiled = isinstance(worst.evidence, CodeEvidence | AnalysisEvidence)
        name = cell_code(kernel)
        if is_compiled:
            name = f"{cell_code(worst.subject.part)} in {name}"
        line = line_of(self.judgement.source_lines, worst)
        if line is not None:
            name = self._linked(name, line)
        text = f"{name} {cell_code(worst.implementation)}<br>{cell_code(shape.translate(_SPACED))}"
        case_count = len({item.case_id for item in group})
        if case_count > 1:
            text += f"<br>and {count_of(case_count - 1, 'more case')}"
            # without both times there is no ratio
            if log_ratios and all(map(math.isfinite, log_ratios)):
                median = math.expm1(statistics.median(log_ratios))
                text += f", median {percent(median)}"
        return text


def _lines(*texts: str) -> str:
    """Join the lines of a cell. Two columns fit a phone of 390 pixels, and three do not."""
    return "<br>".join(filter(None, texts))


def groups_of_times(judgement: PullRequestJudgement) -> list[list[Change[CaseEvidence]]]:
    """Group the changed times by kernel, implementation and verdict, the largest change first."""
    timed = [
        case
        for case in judgement.cases
        if case.reason is Reason.BEYOND_THRESHOLD and case.log_interval is not None
    ]
    return _by_kernel(worst_first(timed), lambda case: case.verdict)


def listed_code(judgement: PullRequestJudgement) -> list[StaticChange]:
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
        groups[kernel_of(item.case_id), item.implementation, kind(item)].append(item)
    return list(groups.values())
