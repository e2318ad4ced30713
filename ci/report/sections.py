"""The open tables of a pull-request comment, one row per kernel: results, times, machine code, launches. Pure."""

import math
import statistics
import urllib.parse
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from roofwatch.ci.ab.changes import Change
from roofwatch.ci.report.findings import VERDICT_ORDER, find_line, reason_words, worst_first
from roofwatch.ci.report.markdown import Section, code, count_of, listed
from roofwatch.ci.report.pull_request import CaseJudgement, PullRequestJudgement
from roofwatch.ci.static.comparison import StaticJudgement
from roofwatch.ci.static.facts import fact_values
from roofwatch.ci.verdicts import Reason
from roofwatch.collector.record.metrics import metric
from roofwatch.db.values import Cause, Verdict

_Changed = TypeVar("_Changed", CaseJudgement, StaticJudgement, Change)
_RESULTS = frozenset({Reason.WRONG_RESULT, Reason.FAILED, Reason.FIXED})
_SPACED = str.maketrans(",/", "  ")
"""A browser breaks lines at spaces."""
_MAX_FACTS = 3
_MAX_MESSAGE = 600
_MAX_STEPS = 5
_TEXT_ON_STEPS = (
    "Predicted: share of the step × change of the kernel, with the same overlap as before. "
    "The interval does not include the error of the share."
)


def changes(judgement: PullRequestJudgement, source_url: str | None = None) -> list[Section]:
    """Write what to look at, the most severe first; nothing if nothing changed.

    Args:
        judgement: The result.
        source_url: Folder of the head's files, for links to lines.
    """
    rows = _Rows(judgement, source_url)
    sections = [
        Section("results", [*rows.results()]),
        Section("times", [*rows.times()]),
        Section("steps of workloads", [*rows.steps()], text=_TEXT_ON_STEPS),
        Section("machine code", [*rows.machine_code()], text=_text_on_code(judgement)),
        Section("memory and host time of a launch", [*rows.launches()]),
        Section("accuracy", [*rows.accuracy()], text="Within tolerance, so no verdict uses this."),
        Section("autotuning", [*rows.autotuning()]),
    ]
    return [section for section in sections if section.rows]


class _Rows:
    """The rows of each table."""

    def __init__(self, judgement: PullRequestJudgement, source_url: str | None) -> None:
        self._judgement = judgement
        self._source_url = source_url

    def results(self) -> Iterator[dict[str, str]]:
        changed = worst_first(case for case in self._judgement.cases if case.reason in _RESULTS)
        for group in _by_kernel(changed, lambda case: case.reason):
            result, message = _bold(group[0], outcome_cell(group[0])), message_cell(group[0])
            yield {"result": result, "benchmark": self._benchmark(group), "message": message}

    def times(self) -> Iterator[dict[str, str]]:
        for group in groups_of_times(self._judgement):
            compared = [case.comparison for case in group if case.comparison is not None]
            low, high = compared[0].relative_interval
            change = _bold(group[0], percent(compared[0].relative_change))
            change += f" ±{(high - low) / 2:.1%}" if math.isfinite(high - low) else ""
            times, roof = both("median_ns", compared[0].base_ns, compared[0].head_ns), roofline_cell(group[0])
            row = {"time": change, "benchmark": self._benchmark(group, [one.log_ratio for one in compared])}
            yield row | {"base → head": f"{times}<br>{roof} of roofline" if roof else times}

    def steps(self) -> Iterator[dict[str, str]]:
        for one in self._judgement.step_predictions[:_MAX_STEPS]:
            kernel = f"{code(one.kernel)} {code(one.implementation)} {percent(one.kernel_change)}"
            yield {
                "step": f"{percent(one.step_change)} ({percent(one.low)} to {percent(one.high)})",
                "workload": f"{code(one.workload_case_id.translate(_SPACED))} {code(one.workload_implementation)}",
                "because of": f"{kernel}, {one.share:.1%} of the step",
            }

    def machine_code(self) -> Iterator[dict[str, str]]:
        shown = sorted((item for item in self._judgement.static if item.is_listed), key=weight_of_code)
        for group in _by_kernel(shown, lambda item: (item.function, item.word)):
            targets = listed(dict.fromkeys(code(item.target) for item in group))
            yield {"machine code": _code_change(group[0]), "benchmark": self._benchmark(group), "targets": targets}

    def launches(self) -> Iterator[dict[str, str]]:
        for group in _by_kernel(self._judgement.secondary_changes, lambda one: (one.metric, one.verdict)):
            worst = group[0]
            size = "nothing before" if math.isinf(worst.relative_change) else percent(worst.relative_change)
            row = {"launch": f"{_bold(worst, size)} {metric(worst.metric).title}"}
            row["benchmark"] = self._benchmark(group, [one.log_ratio for one in group])
            yield row | {"base → head": both(worst.metric, worst.base, worst.head)}

    def accuracy(self) -> Iterator[dict[str, str]]:
        for group in _by_kernel(self._judgement.accuracy_changes, lambda one: one.reason):
            worst = group[0]
            factor = f"× {math.exp(worst.log_ratio):.2g}"
            if math.isinf(worst.log_ratio):
                factor = "no longer exact" if worst.head else "exact now"
            row = {"error": f"{factor}, {reason_words(worst.reason)}", "benchmark": self._benchmark(group)}
            yield row | {"base → head": f"{both('rmse_ratio', worst.base, worst.head)} ({code(worst.part)})"}

    def autotuning(self) -> Iterator[dict[str, str]]:
        for case in self._judgement.cases:
            for flip in case.flips if case.verdict is not Verdict.UNCHANGED else ():
                yield {"autotuning": flip.quoted(code), "benchmark": self._benchmark([case])}

    def _benchmark(self, group: Sequence[_Changed], log_ratios: Sequence[float] = ()) -> str:
        """Name a kernel with its worst case, and what the others have in common with it."""
        worst = group[0]
        kernel, _, shape = worst.case_id.partition("/")
        function = worst.function if isinstance(worst, StaticJudgement) else None
        name = code(kernel) if function is None else f"{code(function)} in {code(kernel)}"
        line = find_line(self._judgement.source_lines, worst.case_id, worst.implementation, function)
        if line is not None and self._source_url is not None:
            name = f"[{name}]({self._source_url}/{urllib.parse.quote(line.file)}#L{line.line})"
        text = f"{name} {code(worst.implementation)}<br>{code(shape.translate(_SPACED))}"
        case_count = len({one.case_id for one in group})
        if case_count > 1:
            text += f"<br>and {count_of(case_count - 1, 'more case')}"
            if log_ratios and all(map(math.isfinite, log_ratios)):
                text += f", median {percent(math.expm1(statistics.median(log_ratios)))}"
        return text


def groups_of_times(judgement: PullRequestJudgement) -> list[list[CaseJudgement]]:
    """Group the changed times by kernel, implementation and verdict, the largest change first."""
    timed = [case for case in judgement.cases if case.reason is Reason.BEYOND_THRESHOLD and case.comparison is not None]
    return _by_kernel(worst_first(timed), lambda case: case.verdict)


def weight_of_code(item: StaticJudgement) -> tuple[int, float, str, str]:
    """Order changes of machine code, the most severe first."""
    moved = item.moved_facts
    base, head = (fact_values(side) if side is not None else {} for side in (item.base, item.head))
    size = abs(head[moved[0]] - base[moved[0]]) if moved else 0.0
    return VERDICT_ORDER.index(item.verdict), -size, item.function, item.case_id


def _by_kernel(items: Iterable[_Changed], kind: Callable[[_Changed], Hashable]) -> list[list[_Changed]]:
    """Group by kernel, implementation and a further property; the first of each group is its worst."""
    groups: dict[Hashable, list[_Changed]] = defaultdict(list)
    for item in items:
        groups[item.case_id.partition("/")[0], item.implementation, kind(item)].append(item)
    return list(groups.values())


def _text_on_code(judgement: PullRequestJudgement) -> str:
    text = "Compiler output only, not timed."
    if any(item.cause is Cause.TOOLCHAIN for item in judgement.static):
        text += " The toolchains differ, which may be the cause."
    return text


# --- cells


def percent(change: float) -> str:
    """Write a relative change with two or three digits: `+8.0%`, `+117%`."""
    return f"{change:+.1%}" if abs(change) < 0.0995 else f"{change:+,.0%}"


def both(name: str, base: float | None, head: float | None) -> str:
    """Write a metric of both sides."""
    return " → ".join("–" if value is None else metric(name).format(value) for value in (base, head))


def roofline_cell(case: CaseJudgement) -> str:
    base, head = (None if side is None else side.utilisation for side in (case.base, case.head))
    return "" if base is None or head is None else " → ".join(dict.fromkeys((f"{base:.0%}", f"{head:.0%}")))


def outcome_cell(case: CaseJudgement) -> str:
    sides = (case.base, case.head)
    base, head = ("–" if side is None else str(side.failure or side.measured or side.accuracy) for side in sides)
    return head if base in {head, "ok"} else f"{base} → {head}"


def message_cell(case: CaseJudgement) -> str:
    if case.detail is not None:
        return case.detail.quoted(code)
    side = case.base if case.reason is Reason.FIXED else case.head
    return code(side.message, limit=_MAX_MESSAGE) if side is not None and side.message else ""


def _bold(item: CaseJudgement | Change, text: str) -> str:
    return f"**{text}**" if item.verdict is Verdict.REGRESSED else text


def _code_change(item: StaticJudgement) -> str:
    word = f"**{item.word}**" if item.verdict is Verdict.REGRESSED or item.reason is Reason.TARGET_LOST else item.word
    moved = item.moved_facts[:_MAX_FACTS]
    if moved and item.base is not None and item.head is not None:
        base, head = fact_values(item.base), fact_values(item.head)
        return f"{word}: " + ", ".join(f"{metric(name).title} {both(name, base[name], head[name])}" for name in moved)
    outcomes = ["–" if side is None else str(side.outcome) for side in (item.base, item.head)]
    parts = [word if item.has_compiled else f"{word}: {' → '.join(outcomes)}"]
    parts += [item.detail.quoted(partial(code, limit=_MAX_MESSAGE))] if item.detail is not None else []
    return ": ".join(parts)
