"""The tables of a pull-request comment, each with its rows in order of relevance. Pure."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from typing import Protocol

from roofwatch.ci.ab.comparable import SideResult
from roofwatch.ci.ab.noise_floor import FLOOR_FACTOR
from roofwatch.ci.reason import Reason
from roofwatch.ci.report.findings import REASON_WORDS, worst_first
from roofwatch.ci.report.markdown import Section, code, count_of
from roofwatch.ci.report.pull_request import CaseJudgement, PullRequestJudgement
from roofwatch.ci.report.static_sections import static_changes, static_evidence
from roofwatch.collector.record.metrics import format_bytes, format_ns, metric
from roofwatch.collector.record.record import SkipReason
from roofwatch.db.values import Verdict

_SUBJECT = ("case", "implementation")
_TIMES = (*_SUBJECT, "base → head", "change (95 % interval)", "of the roof")
_MAX_COUNTERS_OF_A_KERNEL = 6
_MAX_LAUNCHES = 30
_SKIP_WORDS: dict[str, str] = {
    SkipReason.SAME_SOURCES: "no module that it is made from changed",
}
_COUNTER_FORMATS = {"_ns": format_ns, "_bytes": format_bytes, "_share": "{:.1%}".format}
_ENVIRONMENT = {
    "runner_class": "runner class",
    "driver_version": "driver",
    "os": "operating system",
    "python_version": "Python",
    "torch_version": "torch",
    "triton_version": "triton",
    "cuda_version": "CUDA",
}


def changes(judgement: PullRequestJudgement) -> list[Section]:
    """What to look at, the gravest first; none if nothing changed."""
    by_reason = {Reason.WRONG_RESULT, Reason.FAILED, Reason.FIXED}
    results = worst_first(case for case in judgement.cases if case.reason in by_reason)
    timed = worst_first(case for case in judgement.cases if case.reason is Reason.BEYOND_THRESHOLD)
    # a configuration of a case that did not move is no news
    moved = [case for case in judgement.cases if case.verdict is not Verdict.UNCHANGED]
    sections = [
        Section(
            "Results",
            ("verdict", *_SUBJECT, "base", "head", "error, base → head", "message"),
            [
                (verdict_cell(case.verdict), *_subject(case), *_outcomes(case), _error_change(case), _message(case))
                for case in results
            ],
        ),
        Section("Time", ("verdict", *_TIMES), [(verdict_cell(case.verdict), *_time_cells(case)) for case in timed]),
        Section(
            "Autotuning",
            (*_SUBJECT, "what ran"),
            [(*_subject(case), flip.remark.quoted(code)) for case in moved for flip in case.flips],
        ),
        *static_changes(judgement),
        _secondary_section(judgement),
        _accuracy_section(judgement),
    ]
    return [section for section in sections if section.rows]


def background(judgement: PullRequestJudgement) -> list[Section]:
    """What explains or completes the verdict, folded."""
    sections = [
        static_evidence(judgement),
        *_case_sections(judgement),
        _limit_section(judgement),
        _launch_section(judgement),
        _counter_section(judgement),
        _left_out_section(judgement),
        Section(
            f"{count_of(len(judgement.skipped), 'kernel')} not measured, which the change cannot touch",
            ("kernel", "why"),
            [(code(one.kernel), _SKIP_WORDS.get(one.reason) or code(one.reason)) for one in judgement.skipped],
            is_folded=True,
        ),
        _environment_section(judgement),
    ]
    return [section for section in sections if section.rows]


def verdict_cell(verdict: Verdict) -> str:
    return f"**{verdict}**" if verdict is Verdict.REGRESSED else str(verdict)


# --- tables


def _secondary_section(judgement: PullRequestJudgement) -> Section:
    def change_cell(change: float, interval: tuple[float, float] | None) -> str:
        if math.isinf(change):
            return "nothing before"
        return f"{change:+.1%}" + ("" if interval is None else f" ({interval[0]:+.1%} to {interval[1]:+.1%})")

    return Section(
        "Memory and host of a launch",
        ("verdict", "what", *_SUBJECT, "base → head", "change (95 % interval)"),
        [
            (
                verdict_cell(one.verdict),
                metric(one.metric).title,
                *_subject(one),
                _both(one.metric, one.base, one.head),
                change_cell(one.relative_change, one.relative_interval),
            )
            for one in judgement.secondary_changes
        ],
        text="Of the time of a kernel on the device this says nothing: that is judged apart.",
    )


def _accuracy_section(judgement: PullRequestJudgement) -> Section:
    def factor(log_ratio: float, head: float) -> str:
        if math.isinf(log_ratio):
            return "no longer exact" if head else "exact now"
        return f"× {math.exp(log_ratio):.2g}"

    return Section(
        "Accuracy, within its tolerance",
        ("what", *_SUBJECT, "result", "error, base → head", "change"),
        [
            (
                str(one.reason).replace("_", " "),
                *_subject(one),
                code(one.part),
                _both("rmse_ratio", one.base, one.head),
                factor(one.log_ratio, one.head),
            )
            for one in judgement.accuracy_changes
        ],
        text="Right on both sides: the verdict does not rest on it.",
    )


def _case_sections(judgement: PullRequestJudgement) -> list[Section]:
    """Cases that are undecided, fail on both sides, or are new."""
    new = [case for case in judgement.cases if case.reason is Reason.NEW_CASE]
    failing = [case for case in judgement.cases if case.reason is Reason.ALREADY_FAILING]
    undecided = [
        case
        for case in judgement.cases
        if case.verdict is Verdict.INCONCLUSIVE and case.reason not in {Reason.NEW_CASE, Reason.REMOVED_CASE}
    ]
    return [
        Section(
            f"{len(undecided)} undecided",
            ("why", *_TIMES),
            [(_why_undecided(case), *_time_cells(case)) for case in worst_first(undecided)],
            is_folded=True,
        ),
        Section(
            f"{len(failing)} failing before and after: not this change's doing",
            (*_SUBJECT, "base", "head", "message"),
            [(*_subject(case), *_outcomes(case), _message(case)) for case in failing],
            is_folded=True,
        ),
        Section(
            f"{len(new)} new, with nothing to compare to yet",
            (*_SUBJECT, "time", "error"),
            [
                (
                    *_subject(case),
                    _value("median_ns", None if case.head is None else case.head.median_ns, missing=""),
                    _value("rmse_ratio", None if case.head is None else case.head.rmse_ratio, missing=""),
                )
                for case in new
            ],
            is_folded=True,
        ),
    ]


def _limit_section(judgement: PullRequestJudgement) -> Section:
    return Section(
        "What limits what got slower",
        (*_SUBJECT, "limit, base → head", "why", "new at the head"),
        [
            (
                *_subject(one),
                str(one.head) if one.base is one.head else f"{one.base} → {one.head}",
                one.headline.quoted(code),
                "; ".join(news.quoted(code) for news in one.news),
            )
            for one in judgement.bottleneck_changes
        ],
        is_folded=True,
        text="A reading of the records: evidence, and no verdict.",
    )


def _launch_section(judgement: PullRequestJudgement) -> Section:
    shown, more = judgement.launch_moves[:_MAX_LAUNCHES], len(judgement.launch_moves) - _MAX_LAUNCHES
    text = "By profiles of both sides, taken after all was timed: evidence, and no verdict."
    return Section(
        "What cases launch otherwise",
        (*_SUBJECT, "launched", "share of the call"),
        [(*_subject(one), one.remark.quoted(code), f"{one.share:.1%}") for one in shown],
        is_folded=True,
        text=f"{text} {more} more are in the judgement." if more > 0 else text,
    )


def _counter_section(judgement: PullRequestJudgement) -> Section:
    shown: Counter[tuple[str, str, str, int]] = Counter()
    rows = []
    for one in judgement.counter_changes:
        kernel = (one.case_id, one.implementation, one.part, one.launch_index)
        shown[kernel] += 1
        if shown[kernel] > _MAX_COUNTERS_OF_A_KERNEL:
            continue
        written = next((to for suffix, to in _COUNTER_FORMATS.items() if one.metric.endswith(suffix)), "{:.6g}".format)
        change = "new" if math.isinf(one.relative_change) else f"{one.relative_change:+.1%}"
        sides = f"{written(one.base)} → {written(one.head)}"
        rows.append((code(one.metric), *_subject(one), code(one.part), sides, change))
    return Section(
        "Hardware counters that moved, the most first",
        ("counter", *_SUBJECT, "kernel", "base → head", "change"),
        rows,
        is_folded=True,
        text="Counted in runs of their own, with other clocks and caches than were timed: evidence, and no verdict.",
    )


def _left_out_section(judgement: PullRequestJudgement) -> Section:
    pairs = [(case, pair) for case in judgement.cases for pair in case.left_out]
    return Section(
        f"{count_of(len(pairs), 'block pair')} left out: the device was held back, or shared",
        (*_SUBJECT, "pair", "base", "head"),
        [
            (
                *_subject(case),
                str(pair.position + 1),
                *(code(", ".join(reasons)) if reasons else "–" for reasons in (pair.base, pair.head)),
            )
            for case, pair in pairs
        ],
        is_folded=True,
    )


def _environment_section(judgement: PullRequestJudgement) -> Section:
    rows = []
    for name, title in _ENVIRONMENT.items():
        sides = [getattr(side, name) for side in (judgement.base_environment, judgement.head_environment)]
        if sides != [None, None]:
            rows.append((title, *("–" if value is None else code(str(value)) for value in sides)))
    text = _intervals(judgement) + _floor_used(judgement)
    return Section("Environment and noise", ("", "base", "head"), rows, is_folded=True, text=text)


def _intervals(judgement: PullRequestJudgement) -> str:
    threshold = f"Practical threshold ±{judgement.thresholds.relative_change:.0%}"
    if not judgement.is_paired:
        return f"{threshold}. The records are no pair, so the noise between them is not known."
    compared = [case.comparison for case in judgement.cases if case.comparison is not None]
    ends = [one.log_interval for one in compared if math.isfinite(one.log_interval[1])]
    if not ends:
        return f"{threshold}; no interval was measured."
    halves = [(high - low) / 2 for low, high in ends]
    blocks = [one.block_count for one in compared]
    block_range = " to ".join(dict.fromkeys([str(min(blocks)), str(max(blocks))]))
    least = judgement.detectable_change
    detectable = "" if least is None else f" A slowdown of {least:.1%} is typically found four times in five."
    return (
        f"{threshold}; a verdict needs the whole 95 % interval beyond it, and at most "
        f"{judgement.thresholds.false_discovery_rate:.0%} of the moves told are expected to be false. Over "
        f"{count_of(len(halves), 'comparison')} of {block_range} blocks a side, "
        f"the interval is typically ±{math.expm1(statistics.median(halves)):.1%}, at its widest "
        f"±{math.expm1(max(halves)):.1%}.{detectable}"
    )


def _floor_used(judgement: PullRequestJudgement) -> str:
    floor = judgement.noise_floor
    if floor is None:
        return ""
    origin = f" By the calibration of {floor.measured_at:%Y-%m-%d} (commit {code(floor.commit_sha[:8])})"
    if floor.most is None:
        return f"{origin} the noise floor of no case asks more than that of a change."
    return (
        f"{origin} a change must exceed {FLOOR_FACTOR:g} times the noise floor of its case where that is more: so in "
        f"{count_of(floor.case_count, 'case')}, by up to ±{floor.most:.1%}."
    )


# --- cells


class _OfACase(Protocol):
    @property
    def case_id(self) -> str: ...

    @property
    def implementation(self) -> str: ...


def _subject(item: _OfACase) -> tuple[str, str]:
    return code(item.case_id), code(item.implementation)


def _value(name: str, value: float | None, missing: str = "–") -> str:
    return missing if value is None else metric(name).format(value)


def _both(name: str, base: float | None, head: float | None) -> str:
    return f"{_value(name, base)} → {_value(name, head)}"


def _time_cells(case: CaseJudgement) -> tuple[str, ...]:
    comparison = case.comparison
    if comparison is None:
        return *_subject(case), "", "", ""
    change, (low, high) = f"{comparison.relative_change:+.1%}", comparison.relative_interval
    if math.isfinite(low) and math.isfinite(high):
        change = f"**{change}** ({low:+.1%} to {high:+.1%})"
    return *_subject(case), _both("median_ns", comparison.base_ns, comparison.head_ns), change, _roof(case)


def _roof(case: CaseJudgement) -> str:
    if case.base is None or case.head is None or case.base.utilisation is None or case.head.utilisation is None:
        return ""
    bound = f" ({case.head.bound})" if case.head.bound else ""
    return _both("utilisation", case.base.utilisation, case.head.utilisation) + bound


def _outcomes(case: CaseJudgement) -> tuple[str, str]:
    def outcome(side: SideResult | None) -> str:
        return "–" if side is None else str(side.failure or side.measured or side.accuracy)

    return outcome(case.base), outcome(case.head)


def _message(case: CaseJudgement) -> str:
    if case.detail is not None:
        return case.detail.quoted(code)
    side = case.base if case.reason is Reason.FIXED else case.head
    return code(side.message) if side is not None and side.message else ""


def _error_change(case: CaseJudgement) -> str:
    base, head = (None if side is None else side.rmse_ratio for side in (case.base, case.head))
    if base is None and head is None:
        return ""
    tensor = case.head.worst_tensor if case.head is not None else None
    return _both("rmse_ratio", base, head) + (f" ({code(tensor)})" if tensor else "")


def _why_undecided(case: CaseJudgement) -> str:
    if case.detail is not None:
        return case.detail.quoted(code)
    if case.reason is Reason.NOISE and case.comparison is not None and case.comparison.more_blocks is not None:
        return f"the noise reaches over the threshold; {case.comparison.more_blocks} more blocks may decide"
    return REASON_WORDS[case.reason]
