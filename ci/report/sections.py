"""The tables of a pull-request comment, each with its rows in order of relevance. Pure."""

from __future__ import annotations

import math
import statistics

from roofwatch.ci.ab.changes import Change
from roofwatch.ci.ab.comparable import SideResult
from roofwatch.ci.ab.compare import Comparison
from roofwatch.ci.ab.noise_floor import FLOOR_FACTOR
from roofwatch.ci.reason import Reason
from roofwatch.ci.report.beside_section import beside_section
from roofwatch.ci.report.evidence_sections import (
    counter_section,
    flip_section,
    launch_section,
    limit_section,
    skipped_section,
)
from roofwatch.ci.report.findings import REASON_WORDS, worst_first
from roofwatch.ci.report.markdown import Section, code
from roofwatch.ci.report.pull_request import CaseJudgement, PullRequestJudgement
from roofwatch.ci.report.static_sections import static_changes, static_evidence
from roofwatch.collector.record.metrics import metric
from roofwatch.db.values import Verdict


def changes(judgement: PullRequestJudgement) -> list[Section]:
    """What to look at, the gravest first; none where nothing changed."""
    sections = [
        _failure_section(judgement),
        _time_section(judgement),
        flip_section(judgement),
        *static_changes(judgement),
        beside_section(judgement),
        _accuracy_section(judgement),
    ]
    return [section for section in sections if section.rows]


def _failure_section(judgement: PullRequestJudgement) -> Section:
    cases = [case for case in judgement.cases if case.reason in {Reason.WRONG_RESULT, Reason.FAILED, Reason.FIXED}]
    return Section(
        "Results",
        ("verdict", "case", "implementation", "base", "head", "error, base → head", "message"),
        [
            (
                _verdict(case.verdict),
                code(case.case_id),
                code(case.implementation),
                _outcome(case.base),
                _outcome(case.head),
                _error_change(case),
                _message(case),
            )
            for case in worst_first(cases)
        ],
    )


def _outcome(side: SideResult | None) -> str:
    if side is None:
        return "–"
    return str(side.failure or side.measured or side.accuracy)


def _message(case: CaseJudgement) -> str:
    if case.detail is not None:
        return case.detail.quoted(code)
    side = case.base if case.reason is Reason.FIXED else case.head
    return code(side.message) if side is not None and side.message else ""


def _time_section(judgement: PullRequestJudgement) -> Section:
    moved = [case for case in judgement.cases if case.reason is Reason.BEYOND_THRESHOLD]
    return Section(
        "Time",
        ("verdict", "case", "implementation", "base → head", "change (95 % interval)", "of the roof"),
        [(_verdict(case.verdict), *_time_cells(case)) for case in worst_first(moved)],
    )


def _time_cells(case: CaseJudgement) -> tuple[str, ...]:
    comparison = case.comparison
    if comparison is None:
        return code(case.case_id), code(case.implementation), "", "", ""
    format_ns = metric("median_ns").format
    return (
        code(case.case_id),
        code(case.implementation),
        f"{format_ns(comparison.base_ns)} → {format_ns(comparison.head_ns)}",
        _change(comparison),
        _roof(case),
    )


def _change(comparison: Comparison) -> str:
    if not all(math.isfinite(end) for end in comparison.relative_interval):
        return f"{comparison.relative_change:+.1%}"
    low, high = comparison.relative_interval
    return f"**{comparison.relative_change:+.1%}** ({low:+.1%} to {high:+.1%})"


def _roof(case: CaseJudgement) -> str:
    if case.base is None or case.head is None or case.base.utilisation is None or case.head.utilisation is None:
        return ""
    share = metric("utilisation").format
    bound = f" ({case.head.bound})" if case.head.bound else ""
    return f"{share(case.base.utilisation)} → {share(case.head.utilisation)}{bound}"


def _accuracy_section(judgement: PullRequestJudgement) -> Section:
    return Section(
        "Accuracy, within its tolerance",
        ("what", "case", "implementation", "result", "error, base → head", "change"),
        [
            (
                str(move.reason).replace("_", " "),
                code(move.case_id),
                code(move.implementation),
                code(move.part),
                " → ".join(metric("rmse_ratio").format(side) for side in (move.base, move.head)),
                _factor(move),
            )
            for move in judgement.accuracy_changes
        ],
        text="Right on both sides: the verdict does not rest on it.",
    )


def _factor(move: Change) -> str:
    if math.isinf(move.log_ratio):
        return "no longer exact" if move.head else "exact now"
    return f"× {math.exp(move.log_ratio):.2g}"


def _error_change(case: CaseJudgement) -> str:
    sides = [side.rmse_ratio if side is not None else None for side in (case.base, case.head)]
    if sides == [None, None]:
        return ""
    old, new = ("–" if value is None else metric("rmse_ratio").format(value) for value in sides)
    tensor = case.head.worst_tensor if case.head is not None else None
    return f"{old} → {new}" + (f" ({code(tensor)})" if tensor else "")


# --- what is folded


def background(judgement: PullRequestJudgement) -> list[Section]:
    """What explains or completes the verdict, folded."""
    undecided = [
        case
        for case in judgement.cases
        if case.verdict is Verdict.INCONCLUSIVE and case.reason not in {Reason.NEW_CASE, Reason.REMOVED_CASE}
    ]
    known = [case for case in judgement.cases if case.reason is Reason.ALREADY_FAILING]
    new = [case for case in judgement.cases if case.reason is Reason.NEW_CASE]
    sections = [
        static_evidence(judgement),
        Section(
            f"{len(undecided)} undecided",
            ("why", "case", "implementation", "base → head", "change (95 % interval)", "of the roof"),
            [(_why(case), *_time_cells(case)) for case in worst_first(undecided)],
            is_folded=True,
        ),
        Section(
            f"{len(known)} failing before and after: not this change's doing",
            ("case", "implementation", "base", "head", "message"),
            [
                (
                    code(case.case_id),
                    code(case.implementation),
                    _outcome(case.base),
                    _outcome(case.head),
                    _message(case),
                )
                for case in known
            ],
            is_folded=True,
        ),
        Section(
            f"{len(new)} new, with nothing to compare to yet",
            ("case", "implementation", "time", "error"),
            [(code(case.case_id), code(case.implementation), *_new_cells(case.head)) for case in new],
            is_folded=True,
        ),
        limit_section(judgement),
        launch_section(judgement),
        counter_section(judgement),
        _left_out_section(judgement),
        skipped_section(judgement),
        _environment_section(judgement),
    ]
    return [section for section in sections if section.rows]


def _left_out_section(judgement: PullRequestJudgement) -> Section:
    cases = [case for case in judgement.cases if case.left_out]
    count = sum(len(case.left_out) for case in cases)
    return Section(
        f"{count_of(count, 'block pair')} left out: the device was held back, or shared",
        ("case", "implementation", "pair", "base", "head"),
        [
            (
                code(case.case_id),
                code(case.implementation),
                str(pair.position + 1),
                *(code(", ".join(reasons)) if reasons else "–" for reasons in (pair.base, pair.head)),
            )
            for case in cases
            for pair in case.left_out
        ],
        is_folded=True,
    )


def _why(case: CaseJudgement) -> str:
    if case.detail is not None:
        return case.detail.quoted(code)
    if case.reason is Reason.NOISE and case.comparison is not None and case.comparison.more_blocks is not None:
        return f"the noise reaches over the threshold; {case.comparison.more_blocks} more blocks may decide"
    return REASON_WORDS[case.reason]


def _new_cells(side: SideResult | None) -> tuple[str, str]:
    if side is None:
        return "", ""
    time = "" if side.median_ns is None else metric("median_ns").format(side.median_ns)
    return time, "" if side.rmse_ratio is None else metric("rmse_ratio").format(side.rmse_ratio)


def _environment_section(judgement: PullRequestJudgement) -> Section:
    base, head = judgement.base_environment, judgement.head_environment
    names = (
        ("runner class", "runner_class"),
        ("driver", "driver_version"),
        ("operating system", "os"),
        ("Python", "python_version"),
        ("torch", "torch_version"),
        ("triton", "triton_version"),
        ("CUDA", "cuda_version"),
    )
    rows = []
    for title, name in names:
        there, here = getattr(base, name), getattr(head, name)
        if there is not None or here is not None:
            rows.append((title, *("–" if value is None else code(str(value)) for value in (there, here))))
    return Section("Environment and noise", ("", "base", "head"), rows, is_folded=True, text=_noise(judgement))


def _noise(judgement: PullRequestJudgement) -> str:
    return _intervals(judgement) + _floor_used(judgement)


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


def _intervals(judgement: PullRequestJudgement) -> str:
    change = judgement.thresholds.relative_change
    if not judgement.is_paired:
        return f"Practical threshold ±{change:.0%}. The records are no pair, so the noise between them is not known."
    halves = []
    for case in judgement.cases:
        if case.comparison is not None and math.isfinite(case.comparison.log_interval[1]):
            low, high = case.comparison.log_interval
            halves.append((high - low) / 2)
    if not halves:
        return f"Practical threshold ±{change:.0%}; no interval was measured."
    least = judgement.detectable_change
    detectable = "" if least is None else f" A slowdown of {least:.1%} is typically found four times in five."
    blocks = [case.comparison.block_count for case in judgement.cases if case.comparison is not None]
    block_range = " to ".join(dict.fromkeys([str(min(blocks)), str(max(blocks))]))
    return (
        f"Practical threshold ±{change:.0%}; a verdict needs the whole 95 % interval beyond it, and at most "
        f"{judgement.thresholds.false_discovery_rate:.0%} of the moves told are expected to be false. Over "
        f"{count_of(len(halves), 'comparison')} of {block_range} blocks a side, "
        f"the interval is typically ±{math.expm1(statistics.median(halves)):.1%}, at its widest "
        f"±{math.expm1(max(halves)):.1%}.{detectable}"
    )


def _verdict(verdict: Verdict) -> str:
    return f"**{verdict}**" if verdict is Verdict.REGRESSED else str(verdict)


def count_of(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
