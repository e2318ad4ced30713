"""The open tables of a pull-request comment, with a row per kernel. Pure."""

import math
import statistics
import urllib.parse
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
from roofwatch.model.grouping import group_by
from roofwatch.model.history import Cause
from roofwatch.model.metrics import metric
from roofwatch.model.source_line import SourceLine
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
    text_on_new = ""
    if judgement.new_implementations:
        text_on_new = _TEXT_ON_NEW
    text_on_accuracy = "Within tolerance, so no verdict uses this."
    sections = [
        Section(
            title="results",
            columns=("result", "benchmark"),
            rows=[*rows.results()],
        ),
        Section(
            title="new implementations",
            columns=("new", "result"),
            rows=[*rows.new_implementations()],
            text=text_on_new,
        ),
        Section(
            title="times",
            columns=("time", "benchmark"),
            rows=[*rows.times()],
        ),
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
        Section(
            title=launches,
            columns=("launch", "benchmark"),
            rows=[*rows.launches()],
        ),
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
    """The rows of each table of a comment."""

    judgement: PullRequestJudgement
    source_url: str | None
    """Without it, source lines are not linked."""

    def results(self) -> Iterator[Row]:
        """What is wrong, failing, fixed or removed."""
        changed = worst_first(
            case for case in self.judgement.cases if case.reason in _RESULTS or is_removed(case)
        )
        messages_seen: set[str] = set()
        for group in _by_kernel(changed, lambda case: case.reason):
            worst = group[0]
            # a removed case has no result, only what it had
            if is_removed(worst):
                yield worst.evidence.claimed.text, self._benchmark(group)
                continue
            message = message_of(worst)
            text = message
            # one cause often fails all cases with one message
            if message in messages_seen:
                text = _SAME_ERROR
            elif message:
                messages_seen.add(message)
            result = bold(worst, outcome_text(worst))
            yield result, _lines(self._benchmark(group), text)

    def new_implementations(self) -> Iterator[Row]:
        """Each new implementation with its result, its code and its times against the others."""
        for new in self.judgement.new_implementations[:_MAX_NEW]:
            name = f"{cell_code(new.kernel)} {cell_code(new.implementation)}"
            line = find_line(self.judgement.source_lines, new.kernel, new.implementation)
            if line is not None:
                name = self._linked(name, line)
            subject = _lines(
                name,
                _shape_cell(new.case_id),
                _more_cases(len(new.case_ids)),
            )
            compiled = [
                f"{words.quoted(code)} ({listed(map(code, targets))})"
                for words, targets in new.compiled
            ]
            times = [words.quoted(code) for words in new.times]
            yield subject, _lines(new.result, *compiled, *times)

    def times(self) -> Iterator[Row]:
        """Each changed time of a kernel, with the worst case in full."""
        for group in groups_of_times(self.judgement):
            worst = group[0]
            size = percent(worst.relative_change)
            change = bold(worst, size) + half_width(worst)
            times = both_sides(
                name="median_ns",
                base=worst.base,
                head=worst.head,
            )
            times += medians_note(worst)
            roof = roofline_text(worst)
            if roof:
                roof += " of roofline"
            names = self._benchmark(group, [case.log_ratio for case in group])
            yield _lines(change, times, roof), names

    def steps(self) -> Iterator[Row]:
        """What the changes of kernels cost the steps of workloads."""
        for step in self.judgement.step_predictions[:_MAX_STEPS]:
            source = step.evidence
            low, high = step.interval
            interval = f"{percent(low)} to {percent(high)}"
            change = f"{percent(step.relative_change)} ({interval})"
            case = cell_code(step.case_id.translate(_SPACED))
            workload = f"{case} {cell_code(step.implementation)}"
            kernel = f"{cell_code(source.kernel)} {cell_code(source.implementation)}"
            because = f"because of {kernel} {percent(source.kernel_change)}"
            share = f"{source.share:.1%} of the step"
            yield change, _lines(workload, because, share)

    def machine_code(self) -> Iterator[Row]:
        """What the compiler made differently, with its targets."""
        # a kernel that cannot be imported fails every check and compilation with one message
        failures: set[str] = set()
        for case in self.judgement.cases_with(Reason.FAILED):
            head = case.evidence.head
            if head is not None and head.message:
                failures.add(head.message)
        groups = _by_kernel(
            items=listed_code(self.judgement),
            kind=lambda change: (change.subject.part, word_of(change)),
        )
        for group in groups:
            target_names = (cell_code(change.subject.target) for change in group)
            targets = listed(dict.fromkeys(target_names))
            change = code_change(group[0], failures)
            yield change, _lines(self._benchmark(group), targets)

    def launches(self) -> Iterator[Row]:
        """What changed in memory and in the time of the host."""
        groups = _by_kernel(
            items=self.judgement.secondary_changes,
            kind=lambda change: (change.metric, change.verdict),
        )
        for group in groups:
            worst = group[0]
            size = "nothing before"
            if not math.isinf(worst.relative_change):
                size = percent(worst.relative_change)
            names = self._benchmark(group, [change.log_ratio for change in group])
            title = metric(worst.metric).title
            headline = f"{bold(worst, size)} {title}"
            sides = both_sides(worst.metric, worst.base, worst.head)
            yield _lines(headline, sides), names

    def accuracy(self) -> Iterator[Row]:
        """Errors within their tolerance that changed."""
        for group in _by_kernel(self.judgement.accuracy_changes, lambda change: change.reason):
            worst = group[0]
            # from or to an error of 0 there is no factor
            if not math.isinf(worst.log_ratio):
                ratio = math.exp(worst.log_ratio)
                factor = f"× {ratio:.2g}"
            elif worst.head:
                factor = "no longer exact"
            else:
                factor = "exact now"
            errors = both_sides(
                name="rmse_ratio",
                base=worst.base,
                head=worst.head,
            )
            tensor = code(worst.subject.part)
            errors += f" ({tensor})"
            change = f"{factor}, {reason_words(worst.reason)}"
            yield change, self._benchmark(group), errors

    def autotuning(self) -> Iterator[Row]:
        """What the autotuner chose differently in cases that changed."""
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
        url = f"{self.source_url}/{path}#L{line.line}"
        return f"[{name}]({url})"

    def _benchmark(self, group: Sequence[Change[Any]], log_ratios: Sequence[float] = ()) -> str:
        """Name a kernel with its worst case, and what the others have in common with it."""
        worst = group[0]
        name = cell_code(worst.subject.kernel)
        # of compiled code, the function is what a reader looks for
        if isinstance(worst.evidence, CodeEvidence | AnalysisEvidence):
            name = f"{cell_code(worst.subject.part)} in {name}"
        line = line_of(self.judgement.source_lines, worst)
        if line is not None:
            name = self._linked(name, line)
        case_ids = {change.case_id for change in group}
        more = _more_cases(len(case_ids))
        # without both times there is no ratio
        if more and log_ratios and all(map(math.isfinite, log_ratios)):
            median = math.expm1(statistics.median(log_ratios))
            more += f", median {percent(median)}"
        return _lines(
            f"{name} {cell_code(worst.implementation)}",
            _shape_cell(worst.case_id),
            more,
        )


def _shape_cell(case_id: str) -> str:
    """The shape, dtype and direction of a case, so that a browser can break the line."""
    _, _, shape = case_id.partition("/")
    return cell_code(shape.translate(_SPACED))


def _more_cases(case_count: int) -> str:
    """How many cases a row stands for besides the one that it names; empty if none."""
    if case_count <= 1:
        return ""
    return f"and {count_of(case_count - 1, 'more case')}"


def _lines(*texts: str) -> str:
    """Join the lines of a cell. Two columns fit a phone of 390 pixels, and three do not."""
    return "<br>".join(filter(None, texts))


def groups_of_times(judgement: PullRequestJudgement) -> list[list[Change[CaseEvidence]]]:
    """Group the changed times by kernel, implementation and verdict, the largest change first."""
    changed = judgement.cases_with(Reason.BEYOND_THRESHOLD)
    timed = [case for case in changed if case.log_interval is not None]
    return _by_kernel(worst_first(timed), lambda case: case.verdict)


def listed_code(judgement: PullRequestJudgement) -> list[StaticChange]:
    """Return the changes of machine code, the most severe first."""
    return sorted(filter(is_listed, judgement.static), key=_severity)


def _severity(change: StaticChange) -> tuple[int, float, str, str]:
    """Sort key: by verdict, then by how far the first fact that differs moved."""
    moved_facts = moved_facts_of(change)
    size = 0.0
    if moved_facts:
        base, head = next(iter(moved_facts.values()))
        size = abs(head - base)
    subject = change.subject
    return (
        VERDICT_ORDER.index(change.verdict),
        -size,
        subject.part,
        subject.case_id,
    )


def _by_kernel(
    items: Iterable[_Changed],
    kind: Callable[[_Changed], Hashable],
) -> list[list[_Changed]]:
    """Group by kernel, implementation and a further property;
    the first of each group is its worst.
    """

    def key(item: _Changed) -> Hashable:
        return (
            kernel_of(item.case_id),
            item.implementation,
            kind(item),
        )

    return list(group_by(items, key).values())
